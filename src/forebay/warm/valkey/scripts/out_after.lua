-- What leases of the partition ARGV[4] hold past the message whose id is ARGV[5] (19 digits), in any order: key,
-- since, deadline, record and slip of each; the record only has the places past it.
if not is_current() then
  return LOST
end
local found, time = {}, now()
if ORDERED then
  for _, key in ipairs(call('SMEMBERS', S .. ':leases:' .. ARGV[4])) do
    local lease = lease_of(key) or incomplete()
    local slip, places = slip_of(lease[1]), {}
    for i = 1, #lease[3], 2 do
      local low, last = lease[3][i], lease[3][i + 1]
      local high = last
      while low < high do
        local middle = math.floor((low + high) / 2)
        if id_at(slip, middle) <= ARGV[5] then
          low = middle + 1
        else
          high = middle
        end
      end
      push(places, low, last)
    end
    local deadline = call('ZSCORE', S .. ':deadlines', key)
    if #places > 0 and tonumber(deadline) > time then
      found[#found + 1] = {
        key,
        call('ZSCORE', S .. ':sinces', key),
        deadline,
        cmsgpack.pack({ lease[1], lease[2], places }),
        call('HGET', S .. ':parcels', lease[1]),
      }
    end
  end
end
return found
