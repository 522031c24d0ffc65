-- Reading: blocks, outcomes, quarantine, flows, partitions, and where everything is at one moment.

local log = ...
local space = log.space

log.verb('read', function(queue_number, first, messages, bytes, partition)
    local queue, room, blocks = log.live_queue(queue_number), log.room(messages, bytes), {}
    local from, index, key = math.max(first, queue.floor), 'primary', nil
    if partition == nil then
        key = {queue_number, from}
    else
        index, key = 'partition', {queue_number, partition, from}
    end
    for _, block in space.block.index[index]:pairs(key, {iterator = 'GE'}) do
        if block.queue ~= queue_number or (partition ~= nil and block.partition ~= partition)
            or not room.fits(block.count, block.size) then
            break
        end
        table.insert(blocks, block)
    end
    return blocks
end)

log.verb('outcomes', function(group_number, first, limit)
    local group = log.live_group(group_number)
    local queue, block = log.live_queue(group.queue), log.block_at(group.queue, first)
    if block == nil or block.last < queue.floor or first <= block.last - block.count then
        return {}
    end
    return space.outcome:select({group_number, block.last}, {limit = limit})
end)

-- How far a group has come: its row and its queue's, lanes, open claims and dead letters.
log.verb('progress', function(group_number, now)
    local group = log.live_group(group_number)
    local queue, lanes, claims, dead = log.live_queue(group.queue), {}, {}, {}
    if queue.ordered then
        for _, lane in space.lane:pairs({group_number}) do
            table.insert(lanes, {lane.partition, lane.position})
        end
    end
    for _, claim in space.claim.index.first:pairs({group_number}) do
        table.insert(claims, {claim.token, claim.first, claim.count, log.maybe(claim.done), log.maybe(claim.handed),
            claim.owner ~= nil, claim.due_at, claim.start_time, claim.attempts})
    end
    for _, letter in space.letter.index.state:pairs({group_number, 'dead'}) do
        table.insert(dead, {letter.sequence, letter.died_at})
    end
    return {log.now(now), group.row or group, queue.next, queue.floor, queue.ordered, lanes, claims, dead}
end)

log.verb('quarantined', function(queue)
    return space.quarantine:select({queue})
end)

-- Flows of ordered queues: blocks with equal ones together, a block that was claimed in part alone, with its body.

local function new_count()
    local groups, order, count = {}, {}, {}

    function count.add(block, position)
        local first = block.last - block.count + 1
        local unclaimed = block.last + 1 - math.max(position, first)
        if first < position then
            table.insert(order, {log.maybe(block.flows), 1, unclaimed, block.appended_at, block.last, block.body})
            return
        end
        local key = block.flows == nil and '' or block.flows
        local known = groups[key]
        if known == nil then
            known = {log.maybe(block.flows), 0, 0, block.appended_at, box.NULL, box.NULL}
            groups[key] = known
            table.insert(order, known)
        end
        known[2], known[3] = known[2] + 1, known[3] + unclaimed
        if tonumber(block.appended_at) < tonumber(known[4]) then
            known[4] = block.appended_at
        end
    end

    count.rows = order
    return count
end

-- The partitions with something unclaimed that the cursor has passed.
local function behind(group)
    local partitions = {}
    for _, lane in space.lane.index.ready:pairs({group.number, 0}, {iterator = 'GE'}) do
        if lane.group ~= group.number then
            break
        end
        partitions[lane.partition] = true
    end
    for _, claim in space.claim.index.partition:pairs({group.number, ''}, {iterator = 'GE'}) do
        if claim.group ~= group.number then
            break
        end
        partitions[claim.partition] = true
    end
    return partitions
end

local function count_lanes(group, count)
    for partition in pairs(behind(group)) do
        local position = log.lane_position(group, partition)
        local key = {group.queue, partition, position}
        for _, block in space.block.index.partition:pairs(key, {iterator = 'GE'}) do
            if block.queue ~= group.queue or block.partition ~= partition or block.last >= group.position then
                break
            end
            count.add(block, position)
        end
    end
end

-- Flows of claims: those of blocks with the same flow together; alone, what is of a dead letter, or of a block
-- with several flows, whose body comes once. The column is an array, and 0x91 begins one of one element. Of an owner's
-- claim, what is out with workers counts as gone, and whole blocks come together whatever their flows are.
local function new_claim_count(group)
    local alike, rows, known_bodies = {}, {}, {}
    local count = {rows = rows}

    local function add_alone(claim, out, key, begin, body)
        table.insert(rows, {
            box.NULL, 0, claim.remaining, claim.start_time, key, claim.letter ~= nil, begin, claim.count,
            log.maybe(out), body,
        })
    end

    local function add_alike(block, whole, remaining, start_time)
        local key = (whole and 'w' or 'p') .. (block.flows == nil and '' or block.flows)
        local known = alike[key]
        if known == nil then
            known = {log.maybe(block.flows), 0, 0, start_time, box.NULL, false, 0, 0, box.NULL, ''}
            alike[key] = known
            table.insert(rows, known)
        end
        known[2], known[3] = known[2] + (whole and 1 or 0), known[3] + remaining
        if tonumber(start_time) < tonumber(known[4]) then
            known[4] = start_time
        end
    end

    function count.add(claim)
        local block = space.block:get({group.queue, claim.block_last})
        local letter = claim.letter ~= nil and space.letter:get({group.number, claim.letter}) or nil
        local out = claim.done
        if claim.owner ~= nil then
            out = log.union(claim.done, claim.handed)
        end
        local left = claim.count - log.count_bits(out)
        local whole = block ~= nil and claim.owner ~= nil and left == block.count
        if letter ~= nil then
            add_alone(claim, out, claim.letter, 0, letter.body)
        elseif block ~= nil and not whole and block.flows ~= nil and block.flows:byte(1) ~= 0x91 then
            local body = known_bodies[tonumber(block.last)] and '' or block.body
            known_bodies[tonumber(block.last)] = true
            add_alone(claim, out, block.last, claim.first - (block.last - block.count + 1), body)
        elseif block ~= nil and left > 0 then
            add_alike(block, whole, left, claim.start_time)
        end
    end

    return count
end

-- What is due and with nobody.
local function count_returned(group, now)
    local count = new_claim_count(group)
    for _, claim in space.claim.index.due:pairs({group.number, box.NULL}, {iterator = 'EQ'}) do
        if tonumber(claim.due_at) > tonumber(now) then
            break
        end
        count.add(claim)
    end
    return count.rows
end

-- What other owners have claimed; nothing where none are given.
local function count_held(group, besides)
    local count, left_out = new_claim_count(group), {}
    for _, owner in ipairs(besides or {}) do
        left_out[owner] = true
    end
    for _, claim in space.claim.index.first:pairs({group.number}, {iterator = 'EQ'}) do
        if besides ~= nil and claim.owner ~= nil and not left_out[claim.owner] then
            count.add(claim)
        end
    end
    return count.rows
end

-- What a group has that is delayed: how much of whole blocks of which all start times are to come, unless `every`;
-- and count, first unclaimed offset and start times of others.
function log.delayed_rows(queue, group, now, every)
    local whole, rows = 0, {}
    for _, row in space.delayed:pairs({queue.number, now}, {iterator = 'GT'}) do
        if row.queue ~= queue.number then
            break
        end
        local position = queue.ordered and log.lane_position(group, row.partition) or group.position
        if tonumber(row.latest) > tonumber(now) and row.last >= math.max(position, queue.floor) then
            local begin = position - (row.last - row.count + 1)
            if not every and begin <= 0 and tonumber(row.earliest) > tonumber(now) then
                whole = whole + row.delayed
            else
                table.insert(rows, {row.count, 1, math.max(0, begin), row.starts})
            end
        end
    end
    return {whole, rows}
end

-- What an ordered queue has for a group: behind its cursor, and ahead of it.
local function count_ordered(group)
    local count = new_count()
    count_lanes(group, count)
    for _, block in space.block:pairs({group.queue, group.position}, {iterator = 'GE'}) do
        if block.queue ~= group.queue then
            break
        end
        local position = log.lane_position(group, block.partition)
        if block.last >= position then
            count.add(block, position)
        end
    end
    return count.rows
end

-- The blocks that end in a gap, up to so many, and whether there may be more; and the body of the one at the cursor.
local function gap_rows(group, gap, limit)
    local rows, cut = {}, box.NULL
    for _, block in space.block:pairs({group.queue, math.max(gap[1], group.position)}, {iterator = 'GE'}) do
        if block.queue ~= group.queue or block.last > gap[2] then
            return rows, false, cut
        end
        if block.last - block.count + 1 < group.position then
            cut = block.body
        end
        table.insert(rows, {block.last, block.count, block.appended_at, log.maybe(block.flows)})
        if #rows == limit then
            return rows, block.last < gap[2], cut
        end
    end
    return rows, false, cut
end

-- For a group whose cursor is between `from` and `to`, the blocks in `gaps`; where it is elsewhere, only its place.
-- What came back, what is delayed, and what others than `besides` have, comes with the last of them.
log.verb('flows', function(group_number, from, to, gaps, limit, now, besides)
    local group = log.live_group(group_number)
    local queue, pages, cut = log.live_queue(group.queue), {}, box.NULL
    local ordered = queue.ordered and count_ordered(group) or box.NULL
    if not queue.ordered then
        local more = group.position < from or group.position > to
        for number, gap in ipairs(more and {} or gaps) do
            local rows, is_more, body = gap_rows(group, gap, limit)
            pages[number], more, cut = rows, more or is_more, body ~= nil and body or cut
        end
        if more then
            return {group.position, pages}
        end
    end
    now = log.now(now)
    local returned, delayed = count_returned(group, now), log.delayed_rows(queue, group, now, true)[2]
    local held = besides == nil and box.NULL or count_held(group, besides)
    return {group.position, pages, ordered, cut, returned, delayed, held, now}
end)

-- Partitions

-- Those of a queue that have messages, past a name, or all; up to so many.
local function partitions(queue, after, limit)
    local names, index = {}, space.block.index.partition
    local found
    if after == nil then
        found = log.first(index, {queue.number, ''}, 'GE', {'queue'})
    else
        found = log.first(index, {queue.number, after}, 'GT', {'queue'})
    end
    while found ~= nil and #names < limit do
        local name = found.partition
        if found.last >= queue.floor or log.lane_next(queue.number, name, queue.floor) ~= nil then
            table.insert(names, name)
        end
        found = log.first(index, {queue.number, name}, 'GT', {'queue'})
    end
    return names
end

-- What is open of a partition: how much waits, how much is out, and the time of the oldest that waits.
local function open_in_lane(queue, group, partition)
    local waiting, handed, oldest_at = 0, 0, nil
    for _, claim in space.claim.index.partition:pairs({group.number, partition}) do
        if claim.letter ~= nil or claim.block_last >= queue.floor then
            local out = claim.owner ~= nil and log.count_bits(log.minus(claim.handed, claim.done)) or 0
            handed, waiting = handed + out, waiting + claim.remaining - out
            local at
            if claim.letter ~= nil then
                at = space.letter:get({group.number, claim.letter}).died_at
            else
                at = space.block:get({queue.number, claim.block_last}).appended_at
            end
            if claim.remaining > out and (oldest_at == nil or tonumber(at) < tonumber(oldest_at)) then
                oldest_at = at
            end
        end
    end
    return waiting, handed, oldest_at
end

local function lane_stats(queue, group, partition)
    local position, first, last = log.lane_position(group, partition), nil, nil
    local messages, unclaimed = 0, 0
    local waiting, handed, waiting_at = open_in_lane(queue, group, partition)
    local key = {queue.number, partition, queue.floor}
    for _, block in space.block.index.partition:pairs(key, {iterator = 'GE'}) do
        if block.queue ~= queue.number or block.partition ~= partition then
            break
        end
        first, last, messages = first or block, block, messages + block.count
        if block.last >= position then
            unclaimed = unclaimed + block.last + 1 - math.max(position, block.last + 1 - block.count)
            if waiting_at == nil or tonumber(block.appended_at) < tonumber(waiting_at) then
                waiting_at = block.appended_at
            end
        end
    end
    return {partition, first.last - first.count + 1, last.last, first.appended_at, last.appended_at, messages,
        waiting + unclaimed, handed, waiting_at or box.NULL}
end

log.verb('lanes', function(group_number, after, limit)
    local group, lanes = log.live_group(group_number), {}
    local queue = log.live_queue(group.queue)
    if queue.ordered then
        for i, partition in ipairs(partitions(queue, after, limit)) do
            lanes[i] = lane_stats(queue, group, partition)
        end
    end
    return lanes
end)

log.verb('spans', function(queue_number, named, after, limit)
    local queue, spans = log.live_queue(queue_number), {}
    if queue.ordered then
        if named == nil then
            named = partitions(queue, after, limit)
        end
        for _, partition in ipairs(named) do
            local first = log.lane_next(queue_number, partition, queue.floor)
            if first ~= nil then
                local last = space.block.index.partition:max({queue_number, partition})
                table.insert(spans, {partition, first.last - first.count + 1, last.last, first.appended_at,
                    last.appended_at})
            end
        end
    end
    return {queue.appended_at, spans}
end)

log.verb('lane_count', function(queue_number)
    local queue = log.live_queue(queue_number)
    return queue.ordered and #partitions(queue, nil, math.huge) or 0
end)

-- What a group has open: held, handed, deferred and due.
local function open_counts(group, now)
    local held, handed, deferred, due = 0, 0, 0, 0
    for _, claim in space.claim.index.first:pairs({group.number}) do
        if claim.owner ~= nil then
            held = held + claim.remaining
            handed = handed + log.count_bits(log.minus(claim.handed, claim.done))
        else
            deferred = deferred + claim.remaining
            if tonumber(claim.due_at) <= tonumber(now) then
                due = due + claim.remaining
            end
        end
    end
    return {held, handed, deferred, due}
end

-- Where everything is: queues, each with its groups, each with what is held, handed, deferred and due.
log.verb('stats', function(now, numbers, after, limit)
    now = log.now(now)
    local queues = {}
    for i, queue in ipairs(log.chosen_queues(numbers, after, limit)) do
        local groups = {}
        for j, group in ipairs(log.groups_of(queue.number)) do
            groups[j] = {group.row, open_counts(group, now), log.delayed_rows(queue, group, now, false)}
        end
        queues[i] = {queue, groups}
    end
    return {now, queues}
end)

-- Finding

log.verb('locate', function(queue_number, digests, now)
    local queue, found = log.live_queue(queue_number), {}
    local since = tonumber(log.now(now)) - queue.dedupe_us
    for i, digest in ipairs(digests) do
        local known = space.digest:get(digest)
        local is_there = known ~= nil and tonumber(known.at) > since and known.sequence >= queue.born
        found[i] = is_there and known.sequence or box.NULL
    end
    return found
end)

-- The open claims in which a message is not finished: owner, due_at, attempts, whether it is out.
local function open_claims(group, sequence, from)
    local found = {}
    for _, claim in space.claim.index.first:pairs({group.number, from}, {iterator = 'GE'}) do
        if claim.group ~= group.number or claim.first > sequence then
            break
        end
        local offset = sequence - claim.first
        if offset < claim.count and not log.has(claim.done, offset) then
            local is_out = log.has(claim.handed, offset)
            table.insert(found, {log.maybe(claim.owner), claim.due_at, claim.attempts, is_out})
        end
    end
    return found
end

-- The outcomes on claims that hold a message, newest first. The block may have been dropped: of the blocks
-- that have outcomes, it is the first that ends at or after the message, if any.
local function outcomes_at(group, sequence, limit)
    local found = {}
    local first = log.first(space.outcome.index.primary, {group.number, sequence}, 'GE', {'group'})
    if first == nil then
        return found
    end
    for _, outcome in space.outcome:pairs({group.number, first.block_last}, {iterator = 'REQ'}) do
        if #found == limit then
            break
        end
        if outcome.first <= sequence and outcome.first + outcome.count > sequence then
            table.insert(found, outcome)
        end
    end
    return found
end

log.verb('find', function(queue_number, sequence, claim_messages_max, outcomes_max, now)
    local queue, standings = log.live_queue(queue_number), {}
    local block = sequence >= queue.floor and log.block_at(queue_number, sequence) or nil
    if block ~= nil and block.last - block.count + 1 > sequence then
        block = nil
    end
    local from = block ~= nil and block.last - block.count + 1 or math.max(0, sequence - claim_messages_max + 1)
    local aside = space.quarantine:select({queue_number, sequence}, {iterator = 'LE', limit = 1})[1]
    local is_corrupt = aside ~= nil and aside.queue == queue_number and sequence < aside.first + aside.count
    for i, group in ipairs(log.groups_of(queue_number)) do
        local position = group.position
        if queue.ordered and block ~= nil then
            position = log.lane_position(group, block.partition)
        end
        standings[i] = {
            group.row, block == nil or sequence < position, open_claims(group, sequence, from),
            space.letter:get({group.number, sequence}) or box.NULL, is_corrupt,
            outcomes_at(group, sequence, outcomes_max),
        }
    end
    return {log.now(now), queue, block or box.NULL, standings}
end)
