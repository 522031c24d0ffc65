-- Lanes: the partitions of an ordered queue as a group sees them, found without scanning a backlog.
--
-- A group's cursor discovers blocks once, in order, and marks their lanes as ready. A lane is ready only
-- while none of its claims is open, and `ready` then names its first block that was not claimed whole; behind
-- the cursor, a lane without open claims that has such a block is ready. A lane that is asked for by its name
-- need not be ready: it goes on behind claims of whoever asks.

local log = ...
local space = log.space

local DISCOVERED_BLOCKS = 1000
local DISCOVERIES_MAX = 10

-- The first block of a partition that ends at a sequence number or later.
function log.lane_next(queue, partition, sequence)
    return log.first(space.block.index.partition, {queue, partition, sequence}, 'GE', {'queue', 'partition'})
end

-- Where a lane stands: from where on nothing was claimed.
function log.lane_position(group, partition)
    local lane = space.lane:get({group.number, partition})
    return lane == nil and group.start or lane.position
end

-- Mark a lane as ready if it has something to claim and no open claim. `first` ends a block before which
-- nothing of the lane is left.
function log.refresh(group, partition, first)
    local lane = space.lane:get({group.number, partition})
    local position = lane == nil and group.start or lane.position
    if lane ~= nil and lane.ready ~= nil then
        return
    end
    if log.first(space.claim.index.partition, {group.number, partition}, 'EQ', {}) ~= nil then
        return
    end
    if first == nil or first < position then
        local block = log.lane_next(group.queue, partition, position)
        first = block ~= nil and block.last or nil
    end
    if first ~= nil then
        space.lane:replace({group.number, partition, position, first})
    end
end

-- Move the cursor past the next blocks; whether there were any.
local function discover(group)
    local firsts, order, last = {}, {}, nil
    local key = {group.queue, group.position}
    for _, block in ipairs(space.block:select(key, {iterator = 'GE', limit = DISCOVERED_BLOCKS})) do
        if block.queue ~= group.queue then
            break
        end
        last = block.last
        if firsts[block.partition] == nil then
            firsts[block.partition] = last
            table.insert(order, block.partition)
        end
    end
    if last == nil then
        return false
    end
    for _, partition in ipairs(order) do
        log.refresh(group, partition, firsts[partition])
    end
    log.move_group(group, last + 1)
    return true
end

function log.ready_lane(group)
    return log.first(space.lane.index.ready, {group.number, 0}, 'GE', {'group'})
end

-- The lane whose turn it is, discovered or not. The cursor moves on until that is certain; at most so far as
-- one transaction may.
function log.first_ready(group)
    for _ = 1, DISCOVERIES_MAX do
        local lane = log.ready_lane(group)
        if lane ~= nil and lane.ready < group.position then
            return lane
        end
        if not discover(group) then
            return lane
        end
    end
    return nil
end

-- Take consecutive blocks of a lane; whether the room is full.
local function take(group, partition, position, room, runs)
    local taken, full = #runs, false
    local key = {group.queue, partition, position}
    for _, block in space.block.index.partition:pairs(key, {iterator = 'GE'}) do
        if block.queue ~= group.queue or block.partition ~= partition then
            break
        end
        local first = math.max(position, block.last - block.count + 1)
        local fitting = room.take(block.last - first + 1, block.size)
        if fitting > 0 then
            table.insert(runs, {block, first, fitting})
            position = first + fitting
        end
        if position <= block.last then
            full = true
            break
        end
    end
    if #runs > taken then
        space.lane:replace({group.number, partition, position, box.NULL})
    end
    return full
end

-- Take from the lanes in the order of what they have ready, as much as fits.
function log.next_lanes(group, room)
    local runs, full = {}, false
    while not full do
        local lane = log.first_ready(group)
        if lane == nil then
            break
        end
        local before = #runs
        full = take(group, lane.partition, lane.position, room, runs)
        assert(full or #runs > before, 'a lane was ready and had nothing')
    end
    return runs
end

-- Take from one lane, whether it was discovered or not; what is out of it must be the owner's.
function log.one_lane(group, partition, owner, room)
    local runs = {}
    for _, claim in space.claim.index.partition:pairs({group.number, partition}) do
        if claim.owner ~= owner then
            return runs
        end
    end
    take(group, partition, log.lane_position(group, partition), room, runs)
    return runs
end
