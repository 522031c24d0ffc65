-- Queues and groups: made, changed, found, deleted, and swept away piece by piece.
--
-- A deleted queue keeps its row, so its number and its sequence numbers are not used again; a deleted group
-- loses its name at once, and its rows in transactions of bounded size.

local log = ...
local space = log.space

local SWEPT_ROWS = 1000
local QUEUE_NUMBER_MAX = 2 ^ 18 - 1

function log.live_queue(number)
    local queue = space.queue:get(number)
    if queue == nil or queue.deleted then
        log.refuse('unknown_queue', number)
    end
    return queue
end

-- A group as a table that follows its cursor.
function log.group_of(row)
    return {number = row.number, queue = row.queue, start = row.start, position = row.position, row = row}
end

function log.live_group(number)
    local row = space.group:get(number)
    if row == nil or row.name == nil then
        log.refuse('unknown_group', number)
    end
    return log.group_of(row)
end

function log.groups_of(queue)
    local groups = {}
    for _, row in space.group.index.queue:pairs({queue}) do
        if row.name ~= nil then
            table.insert(groups, log.group_of(row))
        end
    end
    return groups
end

-- The block that holds a message, or the next one of its queue.
function log.block_at(queue, sequence)
    return log.first(space.block.index.primary, {queue, sequence}, 'GE', {'queue'})
end

function log.move_group(group, position)
    group.position = position
    space.group:update(group.number, {{'=', 'position', position}})
    log.wrote = true
end

log.verb('create_queue', function(name, settings, ordered, dedupe_us, number, now)
    now = log.now(now)
    local found = space.queue.index.name:get(name)
    if found ~= nil and not found.deleted then
        return found
    end
    if found ~= nil then
        return space.queue:update(found.number, {
            {'=', 'settings', settings}, {'=', 'created_at', now}, {'=', 'deleted', false},
            {'=', 'ordered', ordered}, {'=', 'dedupe_us', dedupe_us},
        })
    end
    if number == nil then
        local last = space.queue.index.primary:max()
        number = last == nil and 1 or last.number + 1
        if number > QUEUE_NUMBER_MAX then
            log.refuse('numbers_used', last.number)
        end
    elseif space.queue:get(number) ~= nil then
        log.refuse('number_taken', space.queue:get(number).name)
    end
    return space.queue:insert({number, name, settings, now, 1, 1, 1, 0, false, ordered, dedupe_us})
end)

-- Change the settings, if they are still what the caller saw.
log.verb('configure_queue', function(number, seen, settings, dedupe_us)
    local queue = log.live_queue(number)
    if queue.settings ~= seen then
        log.refuse('changed')
    end
    return space.queue:update(number, {{'=', 'settings', settings}, {'=', 'dedupe_us', dedupe_us}})
end)

log.verb('queue', function(name)
    local found = space.queue.index.name:get(name)
    if found ~= nil and found.deleted then
        return nil
    end
    return found
end)

-- Queues by number: those of a list, or from the first number past `after` on; up to `limit`, where it is given.
function log.chosen_queues(numbers, after, limit)
    local found = {}
    limit = limit == nil and math.huge or limit
    if numbers ~= nil then
        for _, number in ipairs(numbers) do
            local queue = number > after and space.queue:get(number) or nil
            if queue ~= nil and not queue.deleted and #found < limit then
                table.insert(found, queue)
            end
        end
        return found
    end
    for _, queue in space.queue:pairs({after}, {iterator = 'GT'}) do
        if #found >= limit then
            break
        end
        if not queue.deleted then
            table.insert(found, queue)
        end
    end
    return found
end

log.verb('queues', log.chosen_queues)

-- Up to `limit` names on either side of one, by their order.
log.verb('near_names', function(name, limit)
    local found = {}
    for _, iterator in ipairs({'GE', 'LT'}) do
        for _, queue in ipairs(space.queue.index.name:select({name}, {iterator = iterator, limit = limit})) do
            if not queue.deleted then
                table.insert(found, queue.name)
            end
        end
    end
    return found
end)

log.verb('delete_queue', function(name)
    local found = space.queue.index.name:get(name)
    if found == nil or found.deleted then
        return nil
    end
    for _, group in ipairs(log.groups_of(found.number)) do
        space.group:update(group.number, {{'=', 'name', box.NULL}})
    end
    space.queue:update(found.number, {{'=', 'deleted', true}, {'=', 'floor', found.next}, {'=', 'born', found.next}})
    return found.number
end)

-- Where a group begins, by what was asked for: earliest, latest, a position or a time.
function log.start_position(queue, kind, value)
    if kind == 'latest' then
        return queue.next
    elseif kind == 'earliest' then
        return queue.floor
    elseif kind == 'position' then
        if value > queue.next then
            log.refuse('past_end', {queue.floor, queue.next})
        end
        return math.max(queue.floor, value)
    end
    local low, high = queue.floor, queue.next
    while low < high do  -- times do not decrease along a queue
        local block = log.block_at(queue.number, math.floor((low + high) / 2))
        if tonumber(block.appended_at) >= tonumber(value) then
            high = block.last - block.count + 1
        else
            low = block.last + 1
        end
    end
    return low
end

log.verb('create_group', function(queue_number, name, kind, value)
    local queue = log.live_queue(queue_number)
    local found = space.group.index.name:select({name, queue_number}, {limit = 1})[1]
    if found ~= nil then
        return found
    end
    local position = log.start_position(queue, kind, value)
    local number = log.take_numbers('group', 1)
    return space.group:insert({number, queue_number, name, position, position, 0, 0, 0, 0, 0, 0, 0, 0, 0})
end)

log.verb('groups', function(queue)
    local rows = {}
    for _, group in ipairs(log.groups_of(queue)) do
        table.insert(rows, group.row)
    end
    return rows
end)

log.verb('delete_group', function(number)
    local row = space.group:get(number)
    if row == nil or row.name == nil then
        return false
    end
    space.group:update(number, {{'=', 'name', box.NULL}})
    return true
end)

-- Delete some rows of a space by the beginning of its index; how many.
function log.sweep(name, index, key, limit)
    local rows = space[name].index[index]:select(key, {limit = limit})
    local primary = space[name].index.primary
    for _, row in ipairs(rows) do
        local row_key = {}
        for i, part in ipairs(primary.parts) do
            row_key[i] = row[part.fieldno]
        end
        primary:delete(row_key)
    end
    return #rows
end

-- Remove some rows of deleted groups; whether there may be more.
log.verb('sweep_groups', function()
    local group = log.first(space.group.index.name, {box.NULL}, 'EQ', {})
    if group == nil then
        return false
    end
    local removed = log.sweep('claim', 'first', {group.number}, SWEPT_ROWS)
    for _, name in ipairs({'lane', 'letter', 'outcome'}) do
        removed = removed + log.sweep(name, 'primary', {group.number}, SWEPT_ROWS)
    end
    if removed == 0 then
        space.group:delete(group.number)
    end
    return true
end)

-- Remove some blocks that a deleted queue left behind; whether there may be more.
log.verb('sweep_blocks', function(number)
    local queue, removed = space.queue:get(number), 0
    for _, block in ipairs(space.block:select({number}, {limit = SWEPT_ROWS})) do
        if block.last >= queue.born then
            break
        end
        space.block:delete({number, block.last})
        removed = removed + 1
    end
    return removed == SWEPT_ROWS
end)
