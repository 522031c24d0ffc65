-- The versions that are kept, oldest first.
return redis.call('LRANGE', KEYS[1] .. ':versions', 0, -1)
