-- Write a version, see that it is whole, and make it the current one. ARGV: the term, document, metadata, how many
-- versions to keep. Answers the version, or nothing where the term is over.
--
-- A term that ran out goes on where nobody has begun another. Versions go by the clock, so that they grow also after
-- everything was flushed. Only versions that are no longer current are removed, and none expires.
local prefix, term, data, meta = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', prefix .. ':term') ~= term then
    return false
end
local time = redis.call('TIME')
local before = tonumber(string.sub(redis.call('GET', prefix .. ':current') or 'v0', 2)) or 0
local version = string.format('%.0f', math.max(before + 1, time[1] * 1000 + math.floor(time[2] / 1000)))
local key = prefix .. ':v' .. version
redis.call('SET', key .. ':data', data)
redis.call('SET', key .. ':meta', meta)
if redis.call('STRLEN', key .. ':data') ~= #data or redis.call('STRLEN', key .. ':meta') ~= #meta then
    return redis.error_reply('INCOMPLETE')
end
redis.call('SET', prefix .. ':current', 'v' .. version)
redis.call('RPUSH', prefix .. ':versions', version)
while redis.call('LLEN', prefix .. ':versions') > tonumber(ARGV[4]) do
    local old = prefix .. ':v' .. redis.call('LPOP', prefix .. ':versions')
    redis.call('DEL', old .. ':data', old .. ':meta')
end
return version
