-- Take messages from their leases, and keep them out under new ones with the same deadlines.
-- ARGV[4]  { { number, epoch, ranges of offsets } … }
-- ARGV[5]  '1' if the new leases are of the same workers, '' if they are of nobody
-- Answers { place in that list, number of the new lease } …
go_on_when_full()
local epoch, kept = current(), {}
for i, want in ipairs(cmsgpack.unpack(ARGV[4])) do
  local key = key_of(want[1])
  local lease = want[2] == epoch and lease_of(key)
  if lease then
    local slip = slip_of(lease[1])
    local inside, rest = split(lease[3], places_of(slip, want[3]))
    if #inside > 0 then
      local since = call('ZSCORE', S .. ':sinces', key)
      local deadline = call('ZSCORE', S .. ':deadlines', key)
      if #rest == 0 then
        drop_lease(key, lane_of(slip))
      else
        call('HSET', S .. ':leases', key, cmsgpack.pack({ lease[1], lease[2], rest }))
      end
      local number, worker = call('HINCRBY', S, 'number', 1), ''
      if ARGV[5] == '1' then
        worker = lease[2]
      end
      put_lease(key_of(number), lease[1], worker, inside, since, deadline)
      kept[#kept + 1] = { i - 1, number }
    end
  end
end
return kept
