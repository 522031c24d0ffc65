-- Which messages their leases still hold.
-- ARGV[4]  { { number, epoch, ranges of offsets } … }; answers { place in that list, ranges of offsets } …
local epoch, time, found = current(), now(), {}

-- Where a parcel has holes, ranges of places are not ranges of offsets.
local function offsets_of(slip, places)
  local offsets = {}
  for i = 1, #places, 2 do
    if not slip[HOLES] then
      push(offsets, slip[BASE] + places[i], slip[BASE] + places[i + 1])
    else
      for place = places[i], places[i + 1] - 1 do
        local offset = offset_at(slip, place)
        push(offsets, offset, offset + 1)
      end
    end
  end
  return offsets
end

for i, want in ipairs(cmsgpack.unpack(ARGV[4])) do
  local key = key_of(want[1])
  local deadline = want[2] == epoch and call('ZSCORE', S .. ':deadlines', key)
  if deadline and tonumber(deadline) > time then
    local lease = lease_of(key) or incomplete()
    local slip = slip_of(lease[1])
    local inside = split(lease[3], places_of(slip, want[3]))
    if #inside > 0 then
      found[#found + 1] = { i - 1, offsets_of(slip, inside) }
    end
  end
end
return found
