-- Let a term last from now on, also one that ran out and that nobody took over. ARGV: the term, milliseconds.
-- Answers 1, or 0 where it is over.
if redis.call('GET', KEYS[1] .. ':term') ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1] .. ':lock', ARGV[1], 'PX', ARGV[2])
return 1
