-- The one write: blocks, settlements and records, the items of a flush in one transaction.
--
-- Items, and the parts of an item, take effect one after the other, each seeing those before it; what was
-- answered to a block id or to the id of a commit is answered again; an atomic item that is not whole leaves
-- nothing behind, and neither does one whose records are refused. An atomic item comes alone. Blocks leave some
-- of the memory to whatever works them off: a log that takes no more of them is no dead end.

local log = ...
local space, maybe = log.space, log.maybe

local SEQUENCE_END = 2 ^ 45
local DIGEST_BYTES = 16
local NO_DIGEST = string.rep('\0', DIGEST_BYTES)  -- of a message without a transaction id
local BLOCKS_PART = 0.9  -- of the memory, for blocks and what comes with them
local UNSHARED_BYTES = 32 * 1024 * 1024  -- rows and indexes take memory in pieces of 16 MiB, and don't share one

-- What the items of a flush have in common, written at its end.
local function new_flush(now)
    return {now = now, queues = {}, groups = {}, lanes = {}}
end

local function queue_of(flush, number)
    local queue = flush.queues[number]
    if queue == nil then
        local row = space.queue:get(number)
        if row == nil or row.deleted then
            return nil
        end
        queue = {row = row, next = row.next, appended_at = row.appended_at}
        flush.queues[number] = queue
    end
    return queue
end

local function tally_of(flush, number)
    local tally = flush.groups[number]
    if tally == nil then
        tally = {done = 0, dead = 0, expired = 0, purged = 0}
        flush.groups[number] = tally
    end
    return tally
end

-- Appending

-- The body of a block on its way in, or that of a staged one.
local function body_of(append)
    if append.stage == nil then
        return append.body
    end
    local staged = space.staged:get({append.stage, append.id})
    if staged == nil then
        log.refuse('not_staged', append.queue)
    end
    return staged.body
end

-- Whether what is left of the memory is for taking, settling and retention; `server.py` says it likewise.
local function is_full()
    local slab = box.slab.info()
    local quota = tonumber(slab.quota_size)
    return tonumber(slab.arena_used) > math.max(quota / 2, BLOCKS_PART * (quota - UNSHARED_BYTES))
end

-- Why nothing of an item is to be written: a queue is gone, or was changed since its block was looked at, or
-- there is no room for a block that isn't there already.
local function refusal(flush, item)
    for _, append in ipairs(item.appends) do
        local queue = queue_of(flush, append.queue)
        if queue == nil then
            return {'unknown_queue', append.queue}
        end
        if queue.row.ordered ~= append.ordered or (queue.row.dedupe_us > 0) ~= append.dedupes then
            return {'outdated', append.queue}
        end
        if append.stage == nil and space.receipt:get(append.id) == nil and is_full() then
            return {'full', append.queue}
        end
    end
    return nil
end

-- The digests of a block's transaction ids, each with the index of its message.
local function digests_of(append)
    local index = -1
    return function()
        local digest
        repeat
            index = index + 1
            if index == append.count then
                return nil
            end
            digest = append.digests:sub(index * DIGEST_BYTES + 1, (index + 1) * DIGEST_BYTES)
        until digest ~= NO_DIGEST
        return index, digest
    end
end

-- When a block was accepted, or when the message of a transaction id was: by its number, since spaces that an
-- older version made have no name for that field.
local function accepted_at(flush, append)
    local now = tonumber(flush.now)
    return append.accepted_at == nil and now or math.min(tonumber(append.accepted_at), now)
end

local function known_accepted_at(known)
    return tonumber(known[4] == nil and known.at or known[4])
end

-- Index and sequence number of the messages whose transaction id is known.
local function duplicates(flush, append)
    local found, queue = {}, queue_of(flush, append.queue).row
    local accepted = accepted_at(flush, append)
    for index, digest in digests_of(append) do
        local known = space.digest:get(digest)
        if known ~= nil and math.abs(known_accepted_at(known) - accepted) < queue.dedupe_us
            and known.sequence >= queue.born then
            table.insert(found, {index, known.sequence})
        end
    end
    return found
end

local function add_digests(flush, append, first, last)
    local kept, born = {}, queue_of(flush, append.queue).row.born
    local accepted = accepted_at(flush, append)
    local waited = accepted ~= tonumber(flush.now) and accepted or box.NULL
    for index, digest in digests_of(append) do
        local known = space.digest:get(digest)
        if known == nil or known.sequence < born or known_accepted_at(known) <= accepted then
            space.digest:replace({digest, first + index, flush.now, waited})
        end
        table.insert(kept, digest)
    end
    space.digest_block:insert({append.queue, last, flush.now, table.concat(kept)})
end

local function add(flush, append)
    local queue = queue_of(flush, append.queue)
    local first, count = queue.next, append.count
    if first + count > SEQUENCE_END then
        log.refuse('no_numbers', append.queue)
    end
    if count > 0 then
        queue.next = first + count
        queue.appended_at = log.later(flush.now, queue.appended_at)
        local body = body_of(append)
        space.block:insert({
            append.queue, queue.next - 1, count, queue.appended_at, #body, append.id, append.partition,
            append.flows, body,
        })
        if append.delays ~= nil and tonumber(append.delays[2]) > tonumber(flush.now) then
            local earliest, latest, delayed, starts = unpack(append.delays)
            space.delayed:insert({
                append.queue, latest, queue.next - 1, count, earliest, delayed, append.partition, starts,
            })
        end
        if append.digests ~= nil then
            add_digests(flush, append, first, queue.next - 1)
        end
    end
    space.receipt:insert({append.id, flush.now, append.queue, first, count, append.total, append.dropped})
    log.wrote = true
    return {append.queue, first, count, false, append.dropped, {}}
end

local function append_block(flush, append)
    local known = space.receipt:get(append.id)
    if known ~= nil then
        return {known.queue, known.first, known.count, true, maybe(known.dropped), {}}, known.total
    end
    local found = append.digests ~= nil and duplicates(flush, append) or {}
    if #found > 0 then
        return {append.queue, 0, 0, false, box.NULL, found}, append.total
    end
    return add(flush, append), append.total
end

-- Settling

-- Count a death, and say whether its letter is to be kept. A message that was handed out again after it had
-- died has only one letter. The one before it is replaced; unless that is itself on its way again, when what
-- becomes of it counts.
local function may_bury(flush, claim, sequence)
    local is_out = false
    for _, other in space.claim.index.letter:pairs({claim.group, sequence}) do
        is_out = is_out or other.token ~= claim.token
    end
    local before, tally = space.letter:get({claim.group, sequence}), tally_of(flush, claim.group)
    if is_out or (before ~= nil and before.state == 'dead') then
        tally.purged = tally.purged + 1
    else
        tally.dead = tally.dead + 1
    end
    return not is_out
end

local function defer(claim, deferred)
    local token = log.take_numbers('token', #deferred)
    for i, deferral in ipairs(deferred) do
        local offset, due_at, attempts, prev_start_time, count = unpack(deferral, 1, 5)
        local letter = claim.count == 1 and maybe(claim.letter) or box.NULL
        space.claim:insert({
            token + i - 1, claim.group, claim.first + offset, count, count, claim.block_last, due_at, due_at,
            prev_start_time, attempts, box.NULL, maybe(claim.partition), box.NULL, box.NULL, letter,
        })
    end
end

-- What an ordered queue has left of a claim behind a message that went back goes back along, uncounted: each run
-- of it is a claim of its own.
local function send_along(token, behind)
    local claim = space.claim:get(token)
    if claim == nil or claim.partition == nil then
        return
    end
    local done, offset, moved = claim.done, behind.offset + 1, 0
    while offset < claim.count do
        local length = 0
        while offset + length < claim.count and not log.has(done, offset + length) do
            length = length + 1
        end
        if length > 0 then
            space.claim:insert({
                log.take_numbers('token', 1), claim.group, claim.first + offset, length, length, claim.block_last,
                behind.due_at, behind.due_at, maybe(claim.prev_start_time), claim.attempts, box.NULL,
                claim.partition, box.NULL, box.NULL, box.NULL,
            })
            moved = moved + length
        end
        offset = offset + length + 1
    end
    if moved == claim.remaining then
        space.claim:delete(token)
    elseif moved > 0 then
        space.claim:update(token, {
            {'=', 'remaining', claim.remaining - moved},
            {'=', 'done', log.union(done, log.bits_from(behind.offset + 1, claim.count))},
        })
    end
end

local function add_outcome(flush, claim, body)
    local key = {claim.group, claim.block_last}
    local newest = space.outcome.index.primary:max(key)
    local number = newest == nil and 1 or newest.number + 1
    space.outcome:insert({claim.group, claim.block_last, number, flush.now, claim.first, claim.count, body})
end

-- What a settlement says of its claim, but for the claim itself.
local function record(flush, settlement, claim)
    local tally = tally_of(flush, claim.group)
    tally.done = tally.done + settlement.done
    tally.expired = tally.expired + settlement.expired
    if #settlement.deferred > 0 then
        defer(claim, settlement.deferred)
    end
    for _, death in ipairs(settlement.dead) do
        local offset, reason, attempts, body = unpack(death, 1, 4)
        local sequence = claim.first + offset
        if may_bury(flush, claim, sequence) then
            space.letter:replace({
                claim.group, sequence, flush.now, attempts, reason, body, 'dead', flush.now, claim.block_last,
                maybe(claim.partition),
            })
        end
    end
    add_outcome(flush, claim, settlement.outcome)
end

-- Settle one claim; whether it is held, and nothing was finished before.
local function settle(flush, settlement)
    local claim, group = space.claim:get(settlement.token), space.group:get(settlement.group)
    if claim == nil or claim.group ~= settlement.group or claim.owner == nil or claim.count ~= settlement.count
        or group.name == nil or log.overlap(claim.done, settlement.finished) then
        return false
    end
    local done = log.union(claim.done, settlement.finished)
    local remaining = claim.count - log.count_bits(done)
    record(flush, settlement, claim)
    if remaining > 0 then
        space.claim:update(claim.token, {{'=', 'remaining', remaining}, {'=', 'done', done}})
    else
        space.claim:delete(claim.token)
        if claim.partition ~= nil then
            flush.lanes[claim.group] = flush.lanes[claim.group] or {}
            flush.lanes[claim.group][claim.partition] = true
        end
    end
    log.wrote = true
    return true
end

-- By claim: the first message that goes back, and when the last does.
local function note_returns(behind, settlement)
    for _, deferral in ipairs(settlement.deferred) do
        local offset, due_at = deferral[1], deferral[2]
        local known = behind[settlement.token] or {offset = offset, due_at = due_at}
        known.offset, known.due_at = math.min(known.offset, offset), log.later(known.due_at, due_at)
        behind[settlement.token] = known
    end
end

local function settle_all(flush, item)
    local conflicts, behind = {}, {}
    for i, settlement in ipairs(item.settlements) do
        if not settle(flush, settlement) then
            table.insert(conflicts, i - 1)
        else
            note_returns(behind, settlement)
        end
    end
    for token, place in pairs(behind) do
        send_along(token, place)
    end
    space.settled:insert({item.id, flush.now, conflicts})
    log.wrote = true
    return conflicts
end

-- Items

-- Whether all of an atomic item can stand. `expected` says of each block at which number it was written
-- before, or 0: what its blocks leave to each other was noted by that.
local function is_whole(item, answers, totals, conflicts)
    for i, append in ipairs(item.appends) do
        local queue, first, _, known, _, found = unpack(answers[i], 1, 6)
        if #found > 0 or (known and (queue ~= append.queue or totals[i] ~= append.total)) then
            return false
        end
        if item.expected ~= nil and item.expected[i] ~= (known and first or 0) then
            return false
        end
    end
    return #conflicts == 0
end

local function write(flush, item)
    local refused = refusal(flush, item)
    if refused ~= nil then
        return refused
    end
    local settles = #item.settlements > 0 or #item.records > 0
    local known = settles and space.settled:get(item.id) or nil
    local answers, totals, conflicts = {}, {}, {}
    for i, append in ipairs(item.appends) do
        answers[i], totals[i] = append_block(flush, append)
    end
    if known ~= nil then
        conflicts = known.conflicts
    elseif settles then
        conflicts = settle_all(flush, item)
    end
    local result = {'written', answers, conflicts}
    if item.atomic and (item.probe or not is_whole(item, answers, totals, conflicts)) then
        log.refuse('not_whole', result)
    end
    if #item.records > 0 and known == nil then
        log.write_records(item.records, flush.now)
    end
    return result
end

local function finish(flush)
    for number, queue in pairs(flush.queues) do
        if queue.next ~= queue.row.next then
            space.queue:update(number, {{'=', 'next', queue.next}, {'=', 'appended_at', queue.appended_at}})
        end
    end
    for number, tally in pairs(flush.groups) do
        space.group:update(number, {
            {'+', 'done', tally.done}, {'+', 'dead', tally.dead}, {'+', 'expired', tally.expired},
            {'+', 'purged', tally.purged},
        })
    end
    for number, partitions in pairs(flush.lanes) do
        local group = log.group_of(space.group:get(number))
        for partition in pairs(partitions) do
            log.refresh(group, partition)
        end
    end
end

log.verb('write', function(items, now)
    local flush, results = new_flush(log.now(now)), {}
    for i, item in ipairs(items) do
        results[i] = write(flush, item)
    end
    finish(flush)
    return results
end)

-- Stages: blocks that are kept unseen until they are published together.

log.verb('stage', function(name, blocks, now)
    local stage = space.stage.index.name:select({name}, {limit = 1})[1]
    local fresh = {}
    for _, block in ipairs(blocks) do
        if stage == nil or space.staged:get({stage.number, block[1]}) == nil then
            table.insert(fresh, block)
        end
    end
    if #fresh == 0 then
        return nil
    end
    if is_full() then
        log.refuse('full', name)
    end
    now = log.now(now)
    local number
    if stage == nil then
        number = log.take_numbers('stage', 1)
        space.stage:insert({number, name, now})
    else
        number = stage.number
        space.stage:update(number, {{'=', 'at', log.later(now, stage.at)}})
    end
    for _, block in ipairs(fresh) do
        space.staged:replace({number, block[1], block[2], block[3]})
    end
end)

-- What there is under each id: queue and stage, or what it was answered when it was published.
log.verb('staged', function(name, ids)
    local stage, pieces = space.stage.index.name:select({name}, {limit = 1})[1], {}
    for i, id in ipairs(ids) do
        local piece = stage ~= nil and space.staged:get({stage.number, id}) or nil
        local known = space.receipt:get(id)
        if piece ~= nil then
            pieces[i] = {'staged', piece.queue, stage.number}
        elseif known ~= nil then
            pieces[i] = {'known', known.queue, known.first, known.count, maybe(known.dropped)}
        else
            pieces[i] = {'missing'}
        end
    end
    return pieces
end)

-- The bodies of staged blocks, one at least, and as many of the others as fit.
log.verb('staged_bodies', function(number, ids, bytes)
    local room, bodies = log.room(#ids, bytes), {}
    for i, id in ipairs(ids) do
        local piece = space.staged:get({number, id})
        if piece == nil then
            log.refuse('not_staged', number)
        end
        if not room.fits(1, #piece.body) then
            break
        end
        bodies[i] = piece.body
    end
    return bodies
end)

log.verb('forget_stage', function(name)
    local stage = space.stage.index.name:select({name}, {limit = 1})[1]
    if stage ~= nil then
        space.stage:update(stage.number, {{'=', 'name', box.NULL}, {'=', 'at', 0}})
    end
end)
