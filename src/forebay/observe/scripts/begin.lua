-- Begin a term, or go on with one's own. KEYS[1]: what all keys begin with.
-- ARGV: owner, milliseconds. Answers the number of the term, or nothing while another's lasts.
local lock, owner = KEYS[1] .. ':lock', ARGV[1]
local last = redis.call('GET', lock)
if last then
    local number, holder = string.match(last, '^(%d+)|(.*)$')
    if holder ~= owner then
        return false
    end
    redis.call('PEXPIRE', lock, ARGV[2])
    return tonumber(number)
end
local number = redis.call('INCR', KEYS[1] .. ':fence')
redis.call('SET', lock, number .. '|' .. owner, 'NX', 'PX', ARGV[2])
redis.call('SET', KEYS[1] .. ':term', number .. '|' .. owner)
return number
