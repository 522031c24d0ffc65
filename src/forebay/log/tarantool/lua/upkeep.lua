-- Retention: what is no longer held is dropped, in transactions of bounded size.
--
-- Blocks are dropped from the oldest on, without gaps; what a group had not claimed of them is counted as
-- skipped, and its cursors move past it; a lane is forgotten once all that it tells apart is dropped.

local log = ...
local space = log.space
local json = require('json')

local TRIMMED_ROWS = 1000
local TRIMMED_QUEUES = 500
local TRIMMED_BYTES = 32 * 1024 * 1024
local TRIMMED_DIGEST_BLOCKS = 100
local DIGEST_BYTES = 16
local SECOND = 1000000

-- The first block that redriven messages hold up in a group's lanes, by its last message.
local function first_held_up(group)
    local least, seen = nil, {}
    for _, claim in space.claim.index.letter:pairs({group.number, 0}, {iterator = 'GE'}) do
        if claim.group ~= group.number then
            break
        end
        if claim.partition ~= nil and not seen[claim.partition] then
            seen[claim.partition] = true
            local position = log.lane_position(group, claim.partition)
            local block = log.lane_next(group.queue, claim.partition, position)
            if block ~= nil and (least == nil or block.last < least) then
                least = block.last
            end
        end
    end
    return least
end

-- The first message that a group has claimed and not finished; redriven ones don't need their block.
local function first_claimed(group)
    for _, claim in space.claim.index.first:pairs({group.number}) do
        if claim.letter == nil then
            return claim.first
        end
    end
    return nil
end

-- The first message that some group still needs, or one before it.
local function first_needed(queue, groups)
    local needed = queue.next
    for _, group in ipairs(groups) do
        local ready = log.ready_lane(group)
        needed = math.min(needed, group.position, first_claimed(group) or needed, first_held_up(group) or needed,
            ready ~= nil and ready.ready or needed)
    end
    return needed
end

-- The oldest blocks that can go: those that nobody needs and that were kept long enough, and expired ones.
local function droppable(queue, needed, now)
    local settings, rows = json.decode(queue.settings), {}
    local kept_from = tonumber(now) - settings.keep_seconds * SECOND
    local expired_before = -1
    if settings.expire_seconds ~= nil then
        expired_before = tonumber(now) - settings.expire_seconds * SECOND
    end
    local size, more = 0, false
    for _, block in space.block:pairs({queue.number, queue.floor}, {iterator = 'GE'}) do
        if block.queue ~= queue.number then
            break
        end
        size = size + block.size
        local at = tonumber(block.appended_at)
        if not ((block.last < needed and at < kept_from) or at < expired_before) then
            break
        end
        if #rows == TRIMMED_ROWS or (#rows > 0 and size > TRIMMED_BYTES) then
            more = true
            break
        end
        table.insert(rows, block)
    end
    return rows, more
end

local function skip(group, floor)
    if group.position < floor then
        space.group:update(group.number, {{'+', 'skipped', floor - group.position}})
        log.move_group(group, floor)
    end
end

local function skip_lanes(group, dropped, last)
    local skipped, moved = 0, {}
    for _, block in ipairs(dropped) do
        local position = moved[block.partition] or log.lane_position(group, block.partition)
        local unclaimed = block.last - math.max(position, block.last - block.count + 1) + 1
        if unclaimed > 0 then
            skipped = skipped + unclaimed
            moved[block.partition] = block.last + 1
        end
    end
    if skipped > 0 then
        space.group:update(group.number, {{'+', 'skipped', skipped}})
        for partition, position in pairs(moved) do
            space.lane:replace({group.number, partition, position, box.NULL})
        end
        for partition in pairs(moved) do
            log.refresh(group, partition)
        end
    end
    if group.position <= last then
        log.move_group(group, last + 1)
    end
end

local function forget_lanes(group, dropped, last)
    for _, block in ipairs(dropped) do
        local lane = space.lane:get({group.number, block.partition})
        if lane ~= nil and lane.position <= last + 1 and lane.ready == nil then
            space.lane:delete({group.number, block.partition})
        end
    end
end

-- Drop the oldest blocks of a queue that retention no longer holds: how many, and whether there may be more.
log.verb('trim_blocks', function(number, now)
    local queue = space.queue:get(number)
    if queue == nil or queue.deleted then
        return {0, false}
    end
    local groups = log.groups_of(number)
    if queue.ordered then
        for _, group in ipairs(groups) do
            local before = group.position
            if log.first_ready(group) == nil and group.position ~= before then
                return {0, true}
            end
        end
    end
    local needed = first_needed(queue, groups)
    local dropped, more = droppable(queue, needed, log.now(now))
    if #dropped == 0 then
        return {0, false}
    end
    local last = dropped[#dropped].last
    for _, group in ipairs(groups) do
        if queue.ordered then
            skip_lanes(group, last >= needed and dropped or {}, last)
            forget_lanes(group, dropped, last)
        else
            skip(group, last + 1)
        end
    end
    for _, block in ipairs(dropped) do
        space.block:delete({number, block.last})
    end
    space.queue:update(number, {{'=', 'floor', last + 1}})
    return {#dropped, more}
end)

-- Remove outcomes of a group whose blocks were dropped, and those older than a time; whether there may be
-- more.
local function trim_group_outcomes(group, floor, before)
    local removed = 0
    for _, outcome in ipairs(space.outcome:select({group.number}, {limit = TRIMMED_ROWS})) do
        if outcome.block_last >= floor and tonumber(outcome.at) >= tonumber(before) then
            break
        end
        space.outcome:delete({group.number, outcome.block_last, outcome.number})
        removed = removed + 1
    end
    return removed == TRIMMED_ROWS
end

log.verb('trim_outcomes', function(number, keep_us, now)
    local queue, more = space.queue:get(number), false
    if queue == nil or queue.deleted then
        return false
    end
    local before = tonumber(log.now(now)) - keep_us
    for _, group in ipairs(log.groups_of(number)) do
        more = trim_group_outcomes(group, queue.floor, before) or more
    end
    return more
end)

-- Whether anything of a queue may be dropped: its oldest block, transaction ids or outcome.
local function is_trimmable(queue, now, remember_us, outcomes_before)
    local settings = json.decode(queue.settings)
    local block = space.block:select({queue.number}, {limit = 1})[1]
    if block ~= nil then
        local seconds = settings.keep_seconds
        if settings.expire_seconds ~= nil then
            seconds = math.min(seconds, settings.expire_seconds)
        end
        if block.last < queue.floor or tonumber(block.appended_at) < now - seconds * SECOND then
            return true
        end
    end
    local kept_us = queue.dedupe_us + math.min(settings.keep_seconds * SECOND, remember_us)
    local digests = space.digest_block:select({queue.number}, {limit = 1})[1]
    if digests ~= nil and (digests.last < queue.born or tonumber(digests.at) <= now - kept_us) then
        return true
    end
    for _, group in ipairs(log.groups_of(queue.number)) do
        local outcome = space.outcome:select({group.number}, {limit = 1})[1]
        if outcome ~= nil and (outcome.block_last < queue.floor or tonumber(outcome.at) < outcomes_before) then
            return true
        end
    end
    return false
end

-- Queues of which something may be dropped, of some after a number; and after which to go on, if any are left.
log.verb('trimmable', function(after, outcome_keep_us, remember_us, now)
    now = tonumber(log.now(now))
    local found, rows = {}, space.queue:select({after}, {iterator = 'GT', limit = TRIMMED_QUEUES})
    for _, queue in ipairs(rows) do
        if is_trimmable(queue, now, remember_us, now - outcome_keep_us) then
            table.insert(found, queue.number)
        end
    end
    return {found, #rows == TRIMMED_QUEUES and rows[#rows].number or box.NULL}
end)

-- Remove some rows that were written before a time; how many.
local function trim_old(name, before)
    local removed = 0
    for _, row in ipairs(space[name].index.at:select({}, {limit = TRIMMED_ROWS})) do
        if tonumber(row.at) >= before then
            break
        end
        space[name]:delete(row.id)
        removed = removed + 1
    end
    return removed
end

-- Forget start times that are over; whether there may be more.
log.verb('trim_delayed', function(now)
    now = tonumber(log.now(now))
    local rows = space.delayed.index.latest:select({}, {limit = TRIMMED_ROWS})
    for _, row in ipairs(rows) do
        if tonumber(row.latest) > now then
            return false
        end
        space.delayed:delete({row.queue, row.latest, row.last})
    end
    return #rows == TRIMMED_ROWS
end)

log.verb('trim_receipts', function(remember_us, now)
    local before = tonumber(log.now(now)) - remember_us
    local receipts, settled = trim_old('receipt', before), trim_old('settled', before)
    return {receipts + settled, math.max(receipts, settled) == TRIMMED_ROWS}
end)

-- Forget letters that were purged, or redriven and finished, before a time; whether there may be more.
log.verb('trim_letters', function(remember_us, now)
    local before, removed = tonumber(log.now(now)) - remember_us, {}
    for _, state in ipairs({'purged', 'redriven'}) do
        for _, letter in space.letter.index.changed:pairs({state}) do
            if tonumber(letter.changed_at) >= before or #removed == TRIMMED_ROWS then
                break
            end
            if log.first(space.claim.index.letter, {letter.group, letter.sequence}, 'EQ', {}) == nil then
                table.insert(removed, {letter.group, letter.sequence})
            end
        end
    end
    for _, key in ipairs(removed) do
        space.letter:delete(key)
    end
    return #removed == TRIMMED_ROWS
end)

-- Forget transaction ids that are no longer looked for; whether there may be more.
log.verb('trim_digests', function(number, remember_us, now)
    local queue, removed = space.queue:get(number), 0
    local kept_us = math.min(json.decode(queue.settings).keep_seconds * SECOND, remember_us)
    local before = math.floor(tonumber(log.now(now)) - queue.dedupe_us - kept_us)
    for _, row in ipairs(space.digest_block:select({number}, {limit = TRIMMED_DIGEST_BLOCKS})) do
        if tonumber(row.at) <= before or row.last < queue.born then
            for i = 1, #row.digests, DIGEST_BYTES do
                local known = space.digest:get(row.digests:sub(i, i + DIGEST_BYTES - 1))
                if known ~= nil and (tonumber(known.at) <= before or known.sequence < queue.born) then
                    space.digest:delete(known.digest)
                end
            end
            space.digest_block:delete({number, row.last})
            removed = removed + 1
        end
    end
    return removed == TRIMMED_DIGEST_BLOCKS
end)

log.verb('trim_owners', function(remember_us, now)
    local before = tonumber(log.now(now)) - remember_us
    local gone = {}
    for _, owner in space.owner.index.beat:pairs() do
        if tonumber(owner.beat_at) >= before then
            break
        end
        if log.first(space.claim.index.owner, {owner.name}, 'EQ', {}) == nil then
            table.insert(gone, owner.name)
        end
    end
    for _, name in ipairs(gone) do
        space.owner:delete(name)
    end
end)

-- Remove some of a stage that is forgotten or old; whether there was one.
log.verb('sweep_stages', function(remember_us, now)
    local before = remember_us == nil and 1 or tonumber(log.now(now)) - remember_us
    local stage = space.stage.index.at:select({}, {limit = 1})[1]
    if stage == nil or tonumber(stage.at) >= math.max(before, 1) then
        return false
    end
    if log.sweep('staged', 'primary', {stage.number}, TRIMMED_ROWS) == 0 then
        space.stage:delete(stage.number)
    end
    return true
end)
