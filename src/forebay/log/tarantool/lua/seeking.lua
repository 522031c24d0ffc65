-- Going on from another place: a group's cursor, its claims, its lanes and its books, in one transaction.

local log = ...
local space = log.space

-- How many messages are held or deferred, from a place on and before it.
local function left_by_claims(group, place)
    local returned, dropped = 0, 0
    for _, claim in space.claim.index.first:pairs({group.number}) do
        if claim.letter == nil then
            local behind = 0
            if claim.first >= place then
                behind = claim.remaining
            else
                for sequence = place, claim.first + claim.count - 1 do
                    behind = behind + (log.has(claim.done, sequence - claim.first) and 0 or 1)
                end
            end
            returned, dropped = returned + behind, dropped + claim.remaining - behind
        end
    end
    return returned, dropped
end

-- How many messages of a lane from a sequence number on were claimed: all before its position.
local function claimed_in_lane(group, lane, since)
    local claimed = 0
    local key = {group.queue, lane.partition, since}
    for _, block in space.block.index.partition:pairs(key, {iterator = 'GE'}) do
        local first = block.last - block.count + 1
        if block.queue ~= group.queue or block.partition ~= lane.partition or first >= lane.position then
            break
        end
        claimed = claimed + math.max(0, math.min(block.last + 1, lane.position) - math.max(first, since))
    end
    return claimed
end

local function claimed_since(queue, group, since)
    if not queue.ordered then
        return math.max(0, group.position - since)
    end
    local claimed = 0
    for _, lane in space.lane:pairs({group.number}) do
        if lane.position > since then
            claimed = claimed + claimed_in_lane(group, lane, since)
        end
    end
    return claimed
end

-- The letters of claims that end are dead again; how many.
local function bury_again(group, now)
    local letters = {}
    for _, claim in space.claim.index.letter:pairs({group.number, 0}, {iterator = 'GE'}) do
        if claim.group ~= group.number then
            break
        end
        letters[claim.letter] = true
    end
    local dead = 0
    for sequence in pairs(letters) do
        if space.letter:get({group.number, sequence}).state == 'redriven' then
            space.letter:update({group.number, sequence}, {{'=', 'state', 'dead'}, {'=', 'changed_at', now}})
            dead = dead + 1
        end
    end
    return dead
end

-- What it means for a group to go on from another place; said in words in forebay.log.seeking, which makes the
-- answer to a seek of the same numbers.
local function reckon(group, kind, value)
    local queue, before = log.live_queue(group.queue), group.row
    local place = log.start_position(queue, kind, value)
    local ready = before.earlier + queue.next - before.start - before.claimed - before.skipped
    local returned, dropped = left_by_claims(group, place)
    local claimed = claimed_since(queue, group, math.max(place, before.start))
    local waiting = queue.next - math.max(place, before.start) - claimed
    local again = queue.next - place - waiting - returned
    return {
        queue = queue, before = before, place = place, ready = ready, claimed = claimed, returned = returned,
        dropped = dropped, skipped = ready - waiting + dropped, claimed_change = ready - waiting - returned,
        earlier_change = again + place - before.start,
    }
end

-- Move the cursor of a group without claims, and book what became of the messages before it.
local function go_on(group, reckoning, dead, purged, done)
    log.sweep('lane', 'primary', {group.number})
    space.group:update(group.number, {
        {'=', 'start', reckoning.place}, {'=', 'position', reckoning.place}, {'+', 'sought', 1},
        {'+', 'earlier', reckoning.earlier_change}, {'+', 'claimed', reckoning.claimed_change},
        {'+', 'dead', dead}, {'+', 'purged', purged}, {'+', 'done', done},
    })
end

log.verb('seek', function(group_number, kind, value, dry_run, now)
    local group = log.live_group(group_number)
    local found = reckon(group, kind, value)
    if not dry_run then
        local dead = bury_again(group, log.now(now))
        log.sweep('claim', 'first', {group_number})
        go_on(group, found, dead, found.skipped, 0)
    end
    return {found.before, found.place, found.queue.next, found.ready, found.claimed, found.returned, found.dropped}
end)

-- The claims of workers: all but those on redriven letters.
local function worker_claims(group, limit)
    local claims = {}
    for _, claim in space.claim.index.first:pairs({group.number}) do
        if #claims == limit then
            break
        end
        if claim.letter == nil then
            table.insert(claims, claim)
        end
    end
    return claims
end

-- Keep letters of messages that the group has not come to: sequence, attempts, reason, body, partition. How many
-- are new, and how many are not.
local function bury(group, queue, dead, now)
    local fresh, again = 0, 0
    for _, letter in ipairs(dead) do
        local sequence, attempts, reason, body, partition = unpack(letter, 1, 5)
        local position = group.position
        if queue.ordered then
            position = log.lane_position(group, partition)
        else
            partition = box.NULL
        end
        if sequence >= position then
            local key = {group.number, sequence}
            local is_out = log.first(space.claim.index.letter, key, 'EQ', {}) ~= nil
            local before = space.letter:get(key)
            if is_out or (before ~= nil and before.state == 'dead') then
                again = again + 1
            else
                fresh = fresh + 1
            end
            if not is_out then
                space.letter:replace({
                    group.number, sequence, now, attempts, reason, body, 'dead', now, sequence, partition,
                })
            end
        end
    end
    return fresh, again
end

-- Book what lies before a place as done, or as dead; how much that is.
log.verb('advance', function(group_number, to, dead, now)
    local group = log.live_group(group_number)
    if to <= group.start then
        return 0
    end
    local found = reckon(group, 'position', to)
    if found.skipped == 0 then
        return 0
    end
    if #dead > 0 and #worker_claims(group, 1) > 0 then
        log.refuse('no_reader', group_number)
    end
    local fresh, again = bury(group, found.queue, dead, log.now(now))
    for _, claim in ipairs(worker_claims(group, math.huge)) do
        space.claim:delete(claim.token)
    end
    go_on(group, found, fresh, again, found.skipped - fresh - again)
    return found.skipped
end)
