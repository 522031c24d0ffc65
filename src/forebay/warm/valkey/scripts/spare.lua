-- Withdraw partitions of which nothing is out, those that would come last first, but for ARGV[8], until so
-- many messages and bytes are. Answers as `withdraw` does, without bodies.
-- ARGV[4]  the fill's number
-- ARGV[5], ARGV[6]  how much is wanted, in messages and bytes
-- ARGV[7]  how long the leases hold, in microseconds
local refusal = fill_refusal(ARGV[4])
if refusal then
  return refusal
end
go_on_when_full()
local messages, bytes, time = tonumber(ARGV[5]), tonumber(ARGV[6]), now()
local cuts, noted, known, kept = {}, {}, {}, nil
while messages > 0 or bytes > 0 do
  local free = call('ZPOPMAX', S .. ':free')
  if not free[1] then
    break
  end
  local lane, before = string.sub(free[1], 20), #cuts
  if lane == ARGV[8] then
    kept = free
  else
    messages = messages - cut(lane, number_at(':ready', lane), cuts)
    for i = before + 1, #cuts do
      local parcel = cuts[i][1]
      bytes = bytes - slip_of(parcel)[SIZE]
      cuts[i][3], known[parcel] = '', true
    end
    forget_noted(lane, noted)
  end
end
if kept then
  call('ZADD', S .. ':free', kept[2], kept[1])
end
local answer = leased(cuts, time, tonumber(ARGV[7]), known)
answer[5] = noted
return answer
