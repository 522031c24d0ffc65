-- Take over leases that have expired, about ARGV[4] messages, for ARGV[5] microseconds.
if not is_current() then
  return LOST
end
go_on_when_full()
local count, time, cuts = tonumber(ARGV[4]), now(), {}
while count > 0 do
  local first = call('ZRANGE', S .. ':deadlines', 0, 0, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) > time then
    break
  end
  local lease = lease_of(first[1]) or incomplete()
  drop_lease(first[1], lane_of(slip_of(lease[1])))
  cuts[#cuts + 1] = { lease[1], lease[3], lease[2] }
  count = count - total(lease[3])
end
return leased(cuts, time, tonumber(ARGV[5]))
