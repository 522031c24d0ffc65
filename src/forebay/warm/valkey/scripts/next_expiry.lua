-- When the next lease expires.
if not current() then
  return false
end
local first = call('ZRANGE', S .. ':deadlines', 0, 0, 'WITHSCORES')
return first[2] and tonumber(first[2]) or false
