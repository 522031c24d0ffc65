-- What is held: marks on it, looking at it, giving it to others; and who holds it.

local log = ...
local space = log.space

-- Marks

local function handed_after(claim, mark)
    if mark == nil or mark[3] ~= claim.count then
        return claim.handed
    end
    return log.minus(log.union(claim.handed, mark[4]), mark[5])
end

-- Whether messages of an ordered queue may not go out: they went back, or something earlier of the partition will
-- not be out after what is `said`, by token.
local function is_late(claim, hands, said)
    if claim.partition == nil or log.count_bits(hands) == 0 then
        return false
    end
    if log.overlap(claim.done, hands) then
        return true
    end
    for _, run in space.claim.index.partition:pairs({claim.group, claim.partition}) do
        if not log.is_before(run, claim) then
            return false
        end
        local out = log.count_bits(log.union(run.done, handed_after(run, said[run.token])))
        if run.owner ~= claim.owner or out < run.count then
            return true
        end
    end
    return false
end

-- Note what is out with workers: marks are group, token, count, handed, returned. The indexes of those
-- refused.
log.verb('mark', function(marks)
    local said, held, refused = {}, {}, {}
    for _, mark in ipairs(marks) do
        said[mark[2]] = mark
    end
    for i, mark in ipairs(marks) do
        local claim, group = space.claim:get(mark[2]), space.group:get(mark[1])
        local is_held = claim ~= nil and claim.group == mark[1] and claim.count == mark[3] and claim.owner ~= nil
            and group ~= nil and group.name ~= nil
        if not is_held or is_late(claim, log.minus(mark[4], mark[5]), said) then
            table.insert(refused, i - 1)
        else
            held[i] = claim
        end
    end
    for i, claim in pairs(held) do
        space.claim:update(claim.token, {{'=', 'handed', log.maybe(handed_after(claim, marks[i]))}})
        log.wrote = true
    end
    return refused
end)

-- Looking, and taking away

log.verb('recall', function(group_number, tokens)
    local group = log.live_group(group_number)
    local queue, claims = log.live_queue(group.queue), {}
    for _, token in ipairs(tokens) do
        local claim = space.claim:get(token)
        if claim ~= nil and claim.group == group_number and claim.owner ~= nil and log.is_kept(claim, queue) then
            table.insert(claims, log.shown_claim(group, claim))
        end
    end
    return {queue.name, claims}
end)

-- The open claims in which a message is not finished.
local function holding(group, sequence)
    local found, block = {}, log.block_at(group.queue, sequence)
    local first = block == nil and sequence or math.min(sequence, block.last - block.count + 1)
    for _, claim in space.claim.index.first:pairs({group.number, first}, {iterator = 'GE'}) do
        if claim.group ~= group.number or claim.first > sequence then
            break
        end
        local offset = sequence - claim.first
        if offset < claim.count and not log.has(claim.done, offset) then
            table.insert(found, claim)
        end
    end
    return found
end

log.verb('holding', function(group_number, sequences)
    local group = log.live_group(group_number)
    local queue, claims, seen = log.live_queue(group.queue), {}, {}
    for _, sequence in ipairs(sequences) do
        for _, claim in ipairs(holding(group, sequence)) do
            if claim.owner ~= nil and not seen[claim.token] and log.is_kept(claim, queue) then
                seen[claim.token] = true
                table.insert(claims, log.shown_claim(group, claim))
            end
        end
    end
    return {queue.name, claims}
end)

log.verb('seize', function(group_number, owner, sequences, partition, held, now)
    local group, found, count = log.live_group(group_number), {}, 0
    log.note_owner(owner, log.now(now))
    if partition ~= nil then
        for _, claim in space.claim.index.partition:pairs({group_number, partition}) do
            found[claim.token] = claim
        end
    end
    for _, sequence in ipairs(sequences) do
        for _, claim in ipairs(holding(group, sequence)) do
            found[claim.token] = claim
        end
    end
    for token, claim in pairs(found) do
        if claim.owner ~= owner and (held or claim.owner == nil) then
            space.claim:update(token, {{'=', 'owner', owner}})
            count = count + 1
        end
    end
    return count
end)

-- Owners

log.verb('heartbeat', function(owners, now)
    for _, owner in ipairs(owners) do
        space.owner:replace({owner, log.now(now)})
    end
end)

log.verb('owners', function()
    return space.owner:select()
end)

log.verb('retire', function(owner, now)
    now = log.now(now)
    space.owner:delete(owner)
    local claims = space.claim.index.owner:select({owner})
    for _, claim in ipairs(claims) do
        space.claim:update(claim.token, {{'=', 'owner', box.NULL}, {'=', 'due_at', now}})
    end
    return #claims
end)
