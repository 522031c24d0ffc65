-- What is current, all at once: the pointer, the document and its metadata; nothing before the first.
local current = redis.call('GET', KEYS[1] .. ':current')
if not current then
    return false
end
local key = KEYS[1] .. ':' .. current
return {current, redis.call('GET', key .. ':data'), redis.call('GET', key .. ':meta')}
