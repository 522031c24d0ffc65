-- Forget returns, unless others were noted since.
-- ARGV[4]… partition, and what is noted of it
if not is_current() then
  return LOST
end
for i = 4, #ARGV, 2 do
  if call('HGET', S .. ':returns', ARGV[i]) == ARGV[i + 1] then
    call('HDEL', S .. ':returns', ARGV[i])
  end
end
return 'OK'
