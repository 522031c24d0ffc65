-- Dead letters: handed out again, taken off the list, listed again.
--
-- A letter is dead, purged or redriven; one that is redriven has at most one open claim, which names it, and
-- keeps its body for as long as that is open; the group's counters follow.

local log = ...
local space = log.space

-- Change the state of a letter; nothing where it is in another.
local function change(group, sequence, from, to, now)
    local letter = space.letter:get({group.number, sequence})
    if letter == nil or letter.state ~= from then
        return nil
    end
    return space.letter:update({group.number, sequence}, {{'=', 'state', to}, {'=', 'changed_at', now}})
end

local function count(group, dead, purged)
    space.group:update(group.number, {{'+', 'dead', dead}, {'+', 'purged', purged}})
end

log.verb('redrive', function(group_number, sequences, now)
    local group, changed = log.live_group(group_number), {}
    now = log.now(now)
    for _, sequence in ipairs(sequences) do
        local letter = change(group, sequence, 'dead', 'redriven', now)
        if letter ~= nil then
            table.insert(changed, sequence)
            space.claim:insert({
                log.take_numbers('token', 1), group_number, sequence, 1, 1, letter.block_last, now, now, box.NULL, 0,
                box.NULL, log.maybe(letter.partition), box.NULL, box.NULL, sequence,
            })
            if letter.partition ~= nil then
                space.lane:update({group_number, letter.partition}, {{'=', 'ready', box.NULL}})
            end
        end
    end
    if #changed > 0 then
        count(group, -#changed, 0)
    end
    return changed
end)

log.verb('purge', function(group_number, sequences, now)
    local group, changed = log.live_group(group_number), {}
    now = log.now(now)
    for _, sequence in ipairs(sequences) do
        if change(group, sequence, 'dead', 'purged', now) ~= nil then
            table.insert(changed, sequence)
        end
    end
    if #changed > 0 then
        count(group, -#changed, #changed)
    end
    return changed
end)

-- Give up the open claim on a redriven letter, unless somebody has it.
local function take_back(group, sequence)
    for _, claim in ipairs(space.claim.index.letter:select({group.number, sequence})) do
        if claim.owner == nil then
            space.claim:delete(claim.token)
            return claim
        end
    end
    return nil
end

log.verb('restore', function(group_number, sequences, now)
    local group, changed, purged, partitions = log.live_group(group_number), {}, 0, {}
    now = log.now(now)
    for _, sequence in ipairs(sequences) do
        if change(group, sequence, 'purged', 'dead', now) ~= nil then
            table.insert(changed, sequence)
            purged = purged + 1
        else
            local claim = take_back(group, sequence)
            if claim ~= nil then
                local letter = change(group, sequence, 'redriven', 'dead', now)
                assert(letter ~= nil, 'a claim on a letter that was not redriven')
                table.insert(changed, sequence)
                if claim.partition ~= nil then
                    partitions[claim.partition] = true
                end
            end
        end
    end
    for partition in pairs(partitions) do
        log.refresh(group, partition)
    end
    if #changed > 0 then
        count(group, #changed, -purged)
    end
    return changed
end)

log.verb('dead_letters', function(group_number, after, limit)
    log.live_group(group_number)
    local letters = {}
    local key = {group_number, 'dead', after}
    for _, letter in space.letter.index.state:pairs(key, {iterator = 'GT'}) do
        if letter.group ~= group_number or letter.state ~= 'dead' or #letters == limit then
            break
        end
        table.insert(letters, letter)
    end
    return letters
end)
