-- The fill of number ARGV[4] is over, in doubt if ARGV[7] is '1'; says so (ARGV[6]) on the channel ARGV[5].
local refusal = fill_refusal(ARGV[4])
if refusal then
  return refusal
end
call('HDEL', S, 'fill', 'fill_until')
if ARGV[7] == '1' then
  call('HSET', S, 'doubt', 1)
end
call('PUBLISH', ARGV[5], ARGV[6])
return 'OK'
