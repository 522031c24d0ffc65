-- Let leases expire ARGV[4] microseconds from now; answers with the places of those that are lost.
-- ARGV[5]  { { number, epoch } … }
go_on_when_full()
local epoch, time, lost = current(), now(), {}
for i, want in ipairs(cmsgpack.unpack(ARGV[5])) do
  local key = key_of(want[1])
  local deadline = want[2] == epoch and call('ZSCORE', S .. ':deadlines', key)
  if deadline and tonumber(deadline) > time then
    call('ZADD', S .. ':deadlines', time + ARGV[4], key)
  else
    lost[#lost + 1] = i - 1
  end
end
return lost
