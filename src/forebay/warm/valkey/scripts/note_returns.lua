-- Note that messages of partitions go back to the log, up to an id each.
-- ARGV[4]  the most partitions that are noted one by one
-- ARGV[5]  how old a return must be, in microseconds, to be dropped when there are too many
-- ARGV[6]… partition and id (19 digits)
if not is_current() then
  return LOST
end
go_on_when_full()
local key, most, time = S .. ':returns', tonumber(ARGV[4]), now()

local function drop_old()
  local noted = call('HGETALL', key)
  for i = 1, #noted, 2 do
    local at = tonumber(string.match(noted[i + 1], '%d+$'))
    if at <= time - ARGV[5] and not call('ZSCORE', S .. ':lanes', noted[i]) then
      call('HDEL', key, noted[i])
    end
  end
end

for i = 6, #ARGV, 2 do
  local lane, last = ARGV[i], ARGV[i + 1]
  local before = call('HGET', key, lane)
  if before and string.sub(before, 1, 19) > last then
    last = string.sub(before, 1, 19)
  end
  local noted = string.format('%s:%.0f:%.0f', last, call('HINCRBY', S, 'number', 1), time)
  if not before and call('HLEN', key) >= most then
    drop_old()
  end
  if before or call('HLEN', key) < most then
    call('HSET', key, lane, noted)
  else
    call('HSET', S, 'return_of_all', noted)
  end
end
return 'OK'
