-- Lease all that is ready of the partition ARGV[4] to nobody, for ARGV[5] microseconds, and forget what is
-- noted. Answers as `leased` does; at the end come pairs of number and slip of what was noted.
if not is_current() then
  return LOST
end
go_on_when_full()
local lane, cuts, noted = ARGV[4], {}, {}
local time = now()
if ORDERED then
  take_from_free(lane)
  cut(lane, number_at(':ready', lane), cuts)
  for _, one in ipairs(cuts) do
    one[3] = ''
  end
  forget_noted(lane, noted)
  close_lane_if_empty(lane)
end
local answer = leased(cuts, time, tonumber(ARGV[5]))
answer[5] = noted
return answer
