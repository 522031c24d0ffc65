-- The spaces: what the log keeps, all of it in memory and in the write-ahead log.
--
-- Blocks and their messages are named by queue and sequence number. A group belongs to one queue, so its rows
-- have sequence numbers only. Texts are ordered by their bytes.

local log = ...

local PREFIX = 'forebay_'

-- Each with its fields and its indexes, the primary one first. A field that may be missing has a `?`.
local spaces = {
    -- Numbers that are given out once, and the row by which a reader waits for the disk.
    {'counter', {'name string', 'value integer'}, {{'primary', 'name'}}},
    -- `born` is where it began anew after it was deleted; `settings` are JSON, of which `ordered` and
    -- `dedupe_us` are repeated.
    {'queue', {
        'number integer', 'name string', 'settings string', 'created_at integer', 'next integer', 'floor integer',
        'born integer', 'appended_at integer', 'deleted boolean', 'ordered boolean', 'dedupe_us number',
    }, {{'primary', 'number'}, {'name', 'name', unique = true}}},
    -- `position` is from where on it has claimed nothing; in an ordered queue, not looked for lanes. A
    -- deleted group has no name, and goes once its rows are gone. `earlier` counts what was accepted before
    -- `start`.
    {'group', {
        'number integer', 'queue integer', 'name string ?', 'start integer', 'position integer', 'sought integer',
        'earlier integer', 'claimed integer', 'skipped integer', 'done integer', 'dead integer', 'purged integer',
        'expired integer', 'corrupt integer',
    }, {{'primary', 'number'}, {'queue', 'queue', 'number'}, {'name', 'name', 'queue'}}},
    -- `last` is its last message: the first block that ends at or after a message holds it.
    {'block', {
        'queue integer', 'last integer', 'count integer', 'appended_at integer', 'size integer', 'id string',
        'partition string ?', 'flows string ?', 'body string',
    }, {{'primary', 'queue', 'last'}, {'partition', 'queue', 'partition', 'last'}}},
    -- What a block id was answered; `total` counts what was pushed, before any message was dropped.
    {'receipt', {
        'id string', 'at integer', 'queue integer', 'first integer', 'count integer', 'total integer',
        'dropped string ?',
    }, {{'primary', 'id'}, {'at', 'at'}}},
    -- Which settlements of a commit came too late.
    {'settled', {'id string', 'at integer', 'conflicts array'}, {{'primary', 'id'}, {'at', 'at'}}},
    -- Transaction ids by digest, and again by block, to find the old ones. `accepted_at` where the message waited
    -- in a spool before it was written.
    {'digest', {'digest string', 'sequence integer', 'at integer', 'accepted_at integer ?'}, {{'primary', 'digest'}}},
    {'digest_block', {'queue integer', 'last integer', 'at integer', 'digests string'},
        {{'primary', 'queue', 'last'}}},
    -- No owner: deferred, or given back. `letter` is the message whose dead letter was redriven.
    {'claim', {
        'token integer', 'group integer', 'first integer', 'count integer', 'remaining integer',
        'block_last integer', 'due_at integer', 'start_time integer', 'prev_start_time integer ?',
        'attempts integer', 'owner string ?', 'partition string ?', 'done string ?', 'handed string ?',
        'letter integer ?',
    }, {
        {'primary', 'token'}, {'first', 'group', 'first', 'count'}, {'owner', 'owner', 'group', 'first', 'count'},
        {'due', 'group', 'owner', 'due_at', 'first', 'count'}, {'partition', 'group', 'partition', 'first', 'count'},
        {'letter', 'group', 'letter'},
    }},
    -- A partition of an ordered queue as a group sees it: everything before `position` was claimed. `ready`
    -- is the last message of the first block of which something can be claimed; none while a claim is open.
    {'lane', {'group integer', 'partition string', 'position integer', 'ready integer ?'},
        {{'primary', 'group', 'partition'}, {'ready', 'group', 'ready'}}},
    -- `block_last` and `partition` are those of the claim in which the message died.
    {'letter', {
        'group integer', 'sequence integer', 'died_at integer', 'attempts integer', 'reason string', 'body string',
        'state string', 'changed_at integer', 'block_last integer', 'partition string ?',
    }, {{'primary', 'group', 'sequence'}, {'state', 'group', 'state', 'sequence'}, {'changed', 'state', 'changed_at'}}},
    {'outcome', {
        'group integer', 'block_last integer', 'number integer', 'at integer', 'first integer', 'count integer',
        'body string',
    }, {{'primary', 'group', 'block_last', 'number'}}},
    -- Start times of blocks of which something is to come later; a row goes once `latest` is over. `starts`: see
    -- forebay.log.delays.
    {'delayed', {
        'queue integer', 'latest integer', 'last integer', 'count integer', 'earliest integer', 'delayed integer',
        'partition string ?', 'starts string',
    }, {{'primary', 'queue', 'latest', 'last'}, {'latest', 'latest'}}},
    {'owner', {'name string', 'beat_at integer'}, {{'primary', 'name'}, {'beat', 'beat_at'}}},
    -- A stage that is forgotten has no name, and goes once its blocks are gone.
    {'stage', {'number integer', 'name string ?', 'at integer'}, {{'primary', 'number'}, {'name', 'name'}, {'at', 'at'}}},
    {'staged', {'stage integer', 'id string', 'queue integer', 'body string'}, {{'primary', 'stage', 'id'}}},
    {'quarantine', {
        'queue integer', 'first integer', 'count integer', 'appended_at integer', 'id string', 'partition string ?',
        'body string',
    }, {{'primary', 'queue', 'first'}}},
    -- `version` counts the writes since the record was last not there.
    {'record', {
        'space string', 'key string', 'version integer', 'updated_at integer', 'expires_at integer ?', 'value string',
    }, {{'primary', 'space', 'key'}, {'expires', 'expires_at'}}},
}

local function format_of(fields)
    local format, types = {}, {}
    for _, text in ipairs(fields) do
        local name, type_, mark = text:match('^(%S+) (%S+)( ?%??)$')
        local field = {name = name, type = type_, is_nullable = mark ~= ''}
        table.insert(format, field)
        types[name] = field
    end
    return format, types
end

local function create(name, fields, indexes)
    local format, types = format_of(fields)
    local space = box.schema.space.create(PREFIX .. name, {format = format, if_not_exists = true})
    for number, index in ipairs(indexes) do
        local parts = {}
        for i = 2, #index do
            local field = types[index[i]]
            table.insert(parts, {field = field.name, type = field.type, is_nullable = field.is_nullable or nil})
        end
        space:create_index(index[1], {
            type = 'tree', parts = parts, unique = number == 1 or index.unique == true, if_not_exists = true,
        })
    end
end

-- What is missing is made: all of it, or what came with a later version. The version is written last: a server
-- that dies before goes on from where it was.
if log.schema < log.schema_known then
    for _, definition in ipairs(spaces) do
        create(unpack(definition))
    end
    local version = box.schema.space.create(PREFIX .. 'schema', {if_not_exists = true})
    version:create_index('primary', {parts = {{1, 'integer'}}, if_not_exists = true})
    version:replace({1, log.schema_known})
end
for _, definition in ipairs(spaces) do
    log.space[definition[1]] = box.space[PREFIX .. definition[1]]
end
