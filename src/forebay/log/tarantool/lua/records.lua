-- Records: small values beside the blocks, by space and key.

local log = ...
local space = log.space

local TRIMMED_ROWS = 1000

local function current(record, now)
    if record == nil or (record.expires_at ~= nil and tonumber(record.expires_at) <= tonumber(now)) then
        return nil
    end
    return record
end

-- Write the records of a commit: space, key, value, expires_at, version. Refuses where one is at another
-- version.
function log.write_records(records, now)
    for i, record in ipairs(records) do
        local name, key, value, expires_at, expected = unpack(record, 1, 5)
        local found = current(space.record:get({name, key}), now)
        local version = found == nil and 0 or found.version
        if expected ~= nil and expected ~= version then
            log.refuse('version', {i - 1, version})
        end
        if value == nil then
            space.record:delete({name, key})
        else
            space.record:replace({name, key, version + 1, now, expires_at, value})
        end
    end
    log.wrote = true
end

log.verb('records', function(name, keys, now)
    local found = {}
    now = log.now(now)
    for _, key in ipairs(keys) do
        local record = current(space.record:get({name, key}), now)
        if record ~= nil then
            table.insert(found, record)
        end
    end
    return found
end)

-- From `from` on and before `to`, but not `after` itself.
log.verb('scan', function(name, from, to, after, limit, now)
    local found = {}
    now = log.now(now)
    for _, record in space.record:pairs({name, from}, {iterator = 'GE'}) do
        if record.space ~= name or record.key >= to or #found == limit then
            break
        end
        if record.key ~= after and current(record, now) ~= nil then
            table.insert(found, record)
        end
    end
    return found
end)

-- Remove some records that have expired; how many.
log.verb('trim_records', function(now)
    local removed = 0
    local rows = space.record.index.expires:select({0}, {iterator = 'GE', limit = TRIMMED_ROWS})
    for _, record in ipairs(rows) do
        if current(record, now) == nil then
            space.record:delete({record.space, record.key})
            removed = removed + 1
        end
    end
    return {removed, removed == TRIMMED_ROWS}
end)
