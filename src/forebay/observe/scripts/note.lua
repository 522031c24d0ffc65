-- Write other metadata beside the current version. ARGV: the term, the version, the metadata.
-- Answers 1, or 0 where the term is over, or another version is current.
local prefix = KEYS[1]
if redis.call('GET', prefix .. ':term') ~= ARGV[1] or redis.call('GET', prefix .. ':current') ~= ARGV[2] then
    return 0
end
redis.call('SET', prefix .. ':' .. ARGV[2] .. ':meta', ARGV[3])
return 1
