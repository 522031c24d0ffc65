-- Begin to fill, for ARGV[4] microseconds; false while somebody else does. A fill that was not ended in its
-- time, or ended in doubt, leaves the doubt to this one.
if not is_current() then
  return LOST
end
local time = now()
local state = call('HMGET', S, 'fill', 'fill_until', 'messages', 'bytes', 'doubt')
if state[1] and tonumber(state[2]) > time then
  return false
end
local doubt = 0
if state[1] or state[5] then
  doubt = 1
end
local number = call('HINCRBY', S, 'number', 1)
call('HSET', S, 'fill', number, 'fill_until', time + ARGV[4])
call('HDEL', S, 'doubt')
return {
  number, tonumber(state[3] or 0), tonumber(state[4] or 0),
  call('HGETALL', S .. ':flows'), call('HGETALL', S .. ':noted_flows'), doubt,
}
