-- End a term. ARGV: the term. One that is over already is left alone.
local lock = KEYS[1] .. ':lock'
if redis.call('GET', lock) == ARGV[1] then
    redis.call('DEL', lock)
end
if redis.call('GET', KEYS[1] .. ':term') == ARGV[1] then
    redis.call('DEL', KEYS[1] .. ':term')
end
return 1
