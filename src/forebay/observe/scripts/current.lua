-- What is current, all at once: the pointer, the document and its metadata; nothing before the first.
-- ARGV: a version that the caller has; nothing, too, while that is the current one.
local current = redis.call('GET', KEYS[1] .. ':current')
if not current or current == ARGV[1] then
    return false
end
local key = KEYS[1] .. ':' .. current
return {current, redis.call('GET', key .. ':data'), redis.call('GET', key .. ':meta')}
