-- Handing out: claims on new blocks, on what is due, and on what a lost owner held.
--
-- A claim leaves with its block, whose checksum is looked at by the caller: what can't be read comes back by
-- `set_aside`. Its fields are token, first, count, done, handed, attempts, start_time, prev_start_time,
-- block.

local log = ...
local space, maybe = log.space, log.maybe

local ID_AT, ID_TO = 17, 32  -- where a block's id is in its body

function log.note_owner(owner, now)
    if space.owner:get(owner) == nil then
        space.owner:insert({owner, now})
    end
end

-- A block as it is answered; without its body where the caller has it.
local function shown(block, known)
    if known == nil or block.last - block.count + 1 < known then
        return block
    end
    return {block.queue, block.last, block.count, block.appended_at, block.size, block.id,
        maybe(block.partition), box.NULL, ''}
end

-- The block of a claim: its letter's own copy where it was redriven.
local function block_of(group, claim)
    if claim.letter == nil then
        return space.block:get({group.queue, claim.block_last})
    end
    local letter = space.letter:get({group.number, claim.letter})
    local body = letter.body
    local id = body:sub(ID_AT, ID_TO)
    id = id .. string.rep('\0', 16 - #id)
    return {group.queue, claim.letter, 1, letter.died_at, #body, id, maybe(claim.partition), box.NULL, body}
end

-- A claim as it is answered, with its block.
function log.shown_claim(group, claim)
    return {claim.token, claim.first, claim.count, maybe(claim.done), maybe(claim.handed), claim.attempts,
        claim.start_time, maybe(claim.prev_start_time), block_of(group, claim)}
end

-- Whether there is something to hand out: a block that has not expired, or a letter.
function log.is_kept(claim, queue)
    return claim.letter ~= nil or claim.block_last >= queue.floor
end

local function remove(group, claims)
    for _, claim in ipairs(claims) do
        space.claim:delete(claim.token)
    end
    for _, claim in ipairs(claims) do
        if claim.partition ~= nil then
            log.refresh(group, claim.partition)
        end
    end
end

-- New claims

local function next_runs(group, room)
    local runs, position = {}, group.position
    for _, block in space.block:pairs({group.queue, position}, {iterator = 'GE'}) do
        if block.queue ~= group.queue then
            break
        end
        local first = math.max(position, block.last - block.count + 1)
        local fitting = room.take(block.last - first + 1, block.size)
        if fitting > 0 then
            table.insert(runs, {block, first, fitting})
            position = first + fitting
        end
        if position <= block.last then
            break
        end
    end
    if #runs > 0 then
        log.move_group(group, position)
    end
    return runs
end

-- The next messages; false says that the cursor moved, and is to be called again.
log.verb('claim', function(group_number, owner, messages, bytes, partition, known, now)
    local group = log.live_group(group_number)
    local queue = log.live_queue(group.queue)
    local room, before, runs = log.room(messages, bytes), group.position, nil
    log.note_owner(owner, log.now(now))
    if not queue.ordered then
        runs = next_runs(group, room)
    elseif partition == nil then
        runs = log.next_lanes(group, room)
    else
        runs = log.one_lane(group, partition, owner, room)
    end
    if #runs == 0 then
        if group.position ~= before then
            return false
        end
        return {}
    end
    local claims, token, total = {}, log.take_numbers('token', #runs), 0
    for i, run in ipairs(runs) do
        local block, first, count = unpack(run)
        space.claim:insert({
            token + i - 1, group_number, first, count, count, block.last, block.appended_at, block.appended_at, box.NULL,
            0, owner, maybe(block.partition), box.NULL, box.NULL, box.NULL,
        })
        claims[i] = {token + i - 1, first, count, box.NULL, box.NULL, 0, block.appended_at, box.NULL,
            shown(block, known)}
        total = total + count
    end
    space.group:update(group_number, {{'+', 'claimed', total}})
    return claims
end)

-- Claims that change hands

-- Whether an earlier run of the same partition is not with an owner. Those that were left out count as his.
local function elsewhere(group, owner)
    local runs_of, left_out = {}, {}
    local found = {}

    function found.holds_up(claim)
        if claim.partition == nil then
            return false
        end
        local runs = runs_of[claim.partition]
        if runs == nil then
            runs = {at = 1}
            for _, run in space.claim.index.partition:pairs({group.number, claim.partition}) do
                if run.owner ~= owner then
                    table.insert(runs, {run.first, run.count, run.token})
                end
            end
            runs_of[claim.partition] = runs
        end
        while runs[runs.at] ~= nil and left_out[runs[runs.at][3]] do
            runs.at = runs.at + 1
        end
        local run = runs[runs.at]
        return run ~= nil and (run[1] < claim.first or (run[1] == claim.first and run[2] < claim.count))
    end

    function found.leave_out(claim)
        left_out[claim.token] = true
    end

    return found
end

local function size_of(group, claim)
    if claim.letter ~= nil then
        return #space.letter:get({group.number, claim.letter}).body
    end
    local block = space.block:get({group.queue, claim.block_last})
    return block == nil and 0 or block.size
end

-- Have claims change hands, as `next_claim` brings them; those in `mine` need not wait for others.
local function take_over(group, owner, room, next_claim, mine)
    local queue = log.live_queue(group.queue)
    local taken, gone, others = {}, {}, elsewhere(group, owner)
    for claim in next_claim do
        local is_passed = false
        if not log.is_kept(claim, queue) then
            table.insert(gone, claim)
        elseif not mine[claim.token] and others.holds_up(claim) then
            is_passed = true
        elseif room.fits(claim.count, size_of(group, claim)) then
            table.insert(taken, claim)
        else
            break
        end
        if not is_passed then
            others.leave_out(claim)
        end
    end
    if #gone > 0 then
        local expired = 0
        for _, claim in ipairs(gone) do
            expired = expired + claim.remaining
        end
        space.group:update(group.number, {{'+', 'expired', expired}})
        remove(group, gone)
    end
    if #taken == 0 then
        return {}
    end
    local token, claims = log.take_numbers('token', #taken), {}
    for i, claim in ipairs(taken) do
        local fresh = claim:update({{'=', 'token', token + i - 1}, {'=', 'owner', owner}})
        space.claim:delete(claim.token)
        space.claim:insert(fresh)
        claims[i] = log.shown_claim(group, fresh)
    end
    return claims
end

-- An iterator over the tuples of an index, without luafun's state.
local function tuples(index, key)
    local generate, parameter, at = index:pairs(key)
    return function()
        local tuple
        at, tuple = generate(parameter, at)
        return tuple
    end
end

function log.is_before(one, other)
    return one.first < other.first or (one.first == other.first and one.count < other.count)
end

local function by_due(one, other)
    if tonumber(one.due_at) ~= tonumber(other.due_at) then
        return tonumber(one.due_at) < tonumber(other.due_at)
    end
    return log.is_before(one, other)
end

local function waiting_of(group, partition)
    local waiting = {}
    for _, claim in space.claim.index.partition:pairs({group.number, partition}) do
        if claim.owner == nil then
            table.insert(waiting, claim)
        end
    end
    table.sort(waiting, by_due)
    return waiting
end

-- Deferred messages whose time has come, and when the next of them comes.
log.verb('due', function(group_number, owner, messages, bytes, partition, now)
    local group = log.live_group(group_number)
    now = log.now(now)
    log.note_owner(owner, now)
    local next_claim
    if partition == nil then
        next_claim = tuples(space.claim.index.due, {group_number, box.NULL})
    else
        local waiting, at = waiting_of(group, partition), 0
        next_claim = function()
            at = at + 1
            return waiting[at]
        end
    end
    local claims = take_over(group, owner, log.room(messages, bytes), function()
        local claim = next_claim()
        if claim ~= nil and tonumber(claim.due_at) <= tonumber(now) then
            return claim
        end
        return nil
    end, {})
    local left
    if partition == nil then
        left = log.first(space.claim.index.due, {group_number, box.NULL}, 'EQ', {})
    else
        left = waiting_of(group, partition)[1]
    end
    return {claims, left ~= nil and left.due_at or box.NULL}
end)

-- The order in which claims change hands. A message, of which the group went back, comes before its letter.
local function comes_first(one, other)
    if one.first == other.first and one.count == other.count then
        return one.letter == nil and other.letter ~= nil
    end
    return log.is_before(one, other)
end

-- Claims in that order, of those that come by first message and count.
local function in_order(generate)
    local ahead = generate()
    return function()
        local claim = ahead
        if claim == nil then
            return nil
        end
        ahead = generate()
        if ahead ~= nil and comes_first(ahead, claim) then
            claim, ahead = ahead, claim
        end
        return claim
    end
end

-- The claims of several owners, by first message.
local function merged(group_number, owners)
    local sources = {}
    for name in pairs(owners) do
        local generate = in_order(tuples(space.claim.index.owner, {name, group_number}))
        table.insert(sources, {generate, generate()})
    end
    return function()
        local least
        for _, source in ipairs(sources) do
            if source[2] ~= nil and (least == nil or comes_first(source[2], least[2])) then
                least = source
            end
        end
        if least == nil then
            return nil
        end
        local claim = least[2]
        least[2] = least[1]()
        return claim
    end
end

log.verb('reclaim', function(group_number, owner, messages, bytes, of, silent_us, besides, now)
    local group = log.live_group(group_number)
    now = log.now(now)
    log.note_owner(owner, now)
    local owners, mine, spared = {}, {}, {}
    for _, row in space.owner.index.beat:pairs() do
        if tonumber(row.beat_at) > tonumber(now) - silent_us then
            break
        end
        owners[row.name] = true
    end
    owners[owner] = nil
    for _, name in ipairs(of) do
        owners[name] = true
    end
    for _, token in ipairs(besides) do
        spared[token] = true
    end
    if owners[owner] then
        for _, claim in space.claim.index.owner:pairs({owner, group_number}) do
            mine[claim.token] = true
        end
    end
    local next_claim = merged(group_number, owners)
    return take_over(group, owner, log.room(messages, bytes), function()
        local claim = next_claim()
        while claim ~= nil and spared[claim.token] do
            claim = next_claim()
        end
        return claim
    end, mine)
end)

-- A claim whose block can't be read: keep a copy of what was found, and count its messages as corrupt.
log.verb('set_aside', function(group_number, token)
    local claim = space.claim:get(token)
    if claim == nil or claim.group ~= group_number then
        return nil
    end
    local group = log.group_of(space.group:get(group_number))
    local _, last, count, appended_at, _, id, partition, _, body = unpack(
        claim.letter == nil and block_of(group, claim):totable() or block_of(group, claim), 1, 9)
    space.quarantine:replace({group.queue, last - count + 1, count, appended_at, id, maybe(partition), body})
    space.group:update(group_number, {{'+', 'corrupt', claim.remaining}})
    remove(group, {claim})
end)

-- How far the write-ahead log is. Without a transaction: whoever asks this waits for nobody.
function log.verbs.stamp()
    return box.NULL, tonumber(box.info.signature)
end

-- What groups have to look forward to: number, next, position, the first lane that is ready, the first time.
log.verb('outlook', function(numbers)
    local found = {}
    for _, number in ipairs(numbers) do
        local group = space.group:get(number)
        if group ~= nil and group.name ~= nil then
            local lane = log.ready_lane(group)
            local claim = log.first(space.claim.index.due, {number, box.NULL}, 'EQ', {})
            table.insert(found, {
                number, space.queue:get(group.queue).next, group.position,
                lane ~= nil and lane.ready or box.NULL, claim ~= nil and claim.due_at or box.NULL,
                group.sought,
            })
        end
    end
    return found
end)
