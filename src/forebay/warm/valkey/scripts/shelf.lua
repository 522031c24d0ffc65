-- What the scripts share; it is put before each of them. The keys are drawn in
-- docs/explanation/warm-valkey.md. Answers LOST (the epoch has ended) and OVER (the fill has) are refusals.
--
-- KEYS[1]  the shelf's state; all other keys begin with it, so they are in its slot
-- ARGV[1]  the epoch that the caller relies on
-- ARGV[2]  the time in microseconds, or '' for the server's own
-- ARGV[3]  '1' if the shelf is ordered
--
-- Numbers are doubles: ids are kept as strings of digits, and times are never joined to strings by `..`.

local S = KEYS[1]
local call = redis.call
local ORDERED = ARGV[3] == '1'
local LOST, OVER = 'LOST', 'OVER'

-- The fields of a slip, as slips.py writes it.
local COUNT, HIGH, LOW, BASE, HOLES, SINCE, SIZE, FLOW, PARTITION = 1, 2, 3, 4, 5, 6, 7, 8, 9

local function now()
  if ARGV[2] ~= '' then
    return tonumber(ARGV[2])
  end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The epoch that the shelf is in; nil after a loss. What a restarted server has on disk may be of some time
-- ago, so an epoch ends with the process that it began in.
local function current()
  local state = call('HMGET', S, 'epoch', 'run')
  if state[1] and state[2] == string.match(call('INFO', 'server'), 'run_id:(%x+)') then
    return state[1]
  end
  return nil
end

local function is_current()
  return current() == ARGV[1]
end

local function end_epoch()
  call('HDEL', S, 'epoch')
  return LOST
end

-- Something that must be there is missing, as when somebody has deleted a key: nothing can be relied on.
local function incomplete()
  end_epoch()
  error('INCOMPLETE')
end

-- Whatever takes messages off must go on when memory is full. The server refuses a script's first write then,
-- unless that frees memory, and lets a script that has begun to write come to its end.
local function go_on_when_full()
  call('HDEL', S, '')
end

-- nil while the fill of that number goes on, or the refusal.
local function fill_refusal(number)
  if not is_current() then
    return LOST
  end
  if call('HGET', S, 'fill') ~= number then
    return OVER
  end
  return nil
end

-- Counters that are absent at zero.
local function add(key, field, change)
  local value = call('HINCRBY', S .. key, field, change)
  if value == 0 then
    call('HDEL', S .. key, field)
  end
  return value
end

local function number_at(key, field)
  return tonumber(call('HGET', S .. key, field) or 0)
end

-- Slips of parcels

local slips = {}

local function slip_of(parcel)
  local slip = slips[parcel]
  if not slip then
    slip = cmsgpack.unpack(call('HGET', S .. ':parcels', parcel) or incomplete())
    slips[parcel] = slip
  end
  return slip
end

local function lane_of(slip)
  if ORDERED then
    return slip[PARTITION] or ''
  end
  return slip[FLOW]
end

local function offset_at(slip, place)
  if not slip[HOLES] then
    return slip[BASE] + place
  end
  return tonumber(string.sub(slip[HOLES], place * 8 + 1, place * 8 + 8), 16)
end

-- The id of the message at a place: 19 digits, which sort as text.
local function id_at(slip, place)
  local high, low = slip[HIGH], slip[LOW] + offset_at(slip, place)
  local carry = math.floor(low / 1000000000)
  return string.format('%010.0f%09.0f', high + carry, low - carry * 1000000000)
end

-- The first place whose offset isn't below this one.
local function place_from(slip, offset)
  if not slip[HOLES] then
    return math.max(0, math.min(slip[COUNT], offset - slip[BASE]))
  end
  local low, high = 0, slip[COUNT]
  while low < high do
    local middle = math.floor((low + high) / 2)
    if offset_at(slip, middle) < offset then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Ranges: flat lists of half-open ranges, ascending

local function total(ranges)
  local sum = 0
  for i = 1, #ranges, 2 do
    sum = sum + ranges[i + 1] - ranges[i]
  end
  return sum
end

-- Add a range at the end; one that follows on the last is joined to it.
local function push(ranges, first, last)
  if first >= last then
    return
  end
  if ranges[#ranges] == first then
    ranges[#ranges] = last
  else
    ranges[#ranges + 1] = first
    ranges[#ranges + 1] = last
  end
end

local function places_of(slip, offsets)
  local places = {}
  for i = 1, #offsets, 2 do
    push(places, place_from(slip, offsets[i]), place_from(slip, offsets[i + 1]))
  end
  return places
end

-- What of `ranges` is in `wanted`, and what isn't.
local function split(ranges, wanted)
  local inside, outside, w = {}, {}, 1
  for i = 1, #ranges, 2 do
    local first, last = ranges[i], ranges[i + 1]
    while first < last do
      while wanted[w] and wanted[w + 1] <= first do
        w = w + 2
      end
      if not wanted[w] or wanted[w] >= last then
        push(outside, first, last)
        break
      end
      local begin, finish = math.max(first, wanted[w]), math.min(last, wanted[w + 1])
      push(outside, first, begin)
      push(inside, begin, finish)
      first = finish
    end
  end
  return inside, outside
end

-- Lanes: flows, or the partitions of an ordered shelf

local function head_of(lane)
  local head = call('ZRANGE', S .. ':runs:' .. lane, 0, 0)[1]
  if head then
    return string.match(head, '^(%d+):%d+:%d+:(.*)$')
  end
  return nil
end

-- A partition that is free is in `free` by the time and id of its head; whoever changes its head takes it
-- out before, and puts it back after.
local function take_from_free(lane)
  local id = head_of(lane)
  if id then
    call('ZREM', S .. ':free', id .. lane)
  end
end

local function put_into_free(lane)
  local id, parcel = head_of(lane)
  if id and number_at(':out', lane) == 0 then
    call('ZADD', S .. ':free', slip_of(parcel)[SINCE], id .. lane)
  end
end

local function make_ready(slip, parcel, lane, first, last)
  local score = 0
  if not ORDERED then
    score = slip[SINCE]
  end
  local run = id_at(slip, first) .. ':' .. first .. ':' .. last .. ':' .. parcel
  call('ZADD', S .. ':runs:' .. lane, score, run)
  add(':ready', lane, last - first)
end

local function open_lane(lane)
  if not call('ZSCORE', S .. ':lanes', lane) then
    call('ZADD', S .. ':lanes', call('HINCRBY', S, 'number', 1), lane)
  end
end

local function close_lane_if_empty(lane)
  local counts = { number_at(':ready', lane), number_at(':out', lane) }
  if counts[1] == 0 and counts[2] == 0 and call('EXISTS', S .. ':noted:' .. lane) == 0 then
    call('ZREM', S .. ':lanes', lane)
  end
end

-- Take up to `count` ready messages of a lane and count them as out; appends { parcel, ranges } to `cuts`.
local function cut(lane, count, cuts)
  local taken = 0
  while taken < count do
    local run = call('ZPOPMIN', S .. ':runs:' .. lane)
    if not run[1] then
      break
    end
    local first, last, parcel = string.match(run[1], '^%d+:(%d+):(%d+):(.*)$')
    first, last = tonumber(first), tonumber(last)
    local stop = math.min(last, first + count - taken)
    if stop < last then
      local rest = id_at(slip_of(parcel), stop) .. ':' .. stop .. ':' .. last .. ':' .. parcel
      call('ZADD', S .. ':runs:' .. lane, run[2], rest)
    end
    taken = taken + stop - first
    cuts[#cuts + 1] = { parcel, { first, stop } }
  end
  if taken > 0 then
    add(':ready', lane, -taken)
    add(':out', lane, taken)
  end
  return taken
end

-- Forget what is noted of a partition; appends pairs of a number and the slip to `forgotten`. The log holds
-- claims then that the shelf doesn't know: the next fill looks for them.
local function forget_noted(lane, forgotten)
  for i, parcel in ipairs(call('ZRANGE', S .. ':noted:' .. lane, 0, -1)) do
    local raw = call('HGET', S .. ':noted', parcel)
    local slip = cmsgpack.unpack(raw)
    if i == 1 then
      call('ZREM', S .. ':noted_heads', id_at(slip, 0) .. lane)
      call('HSET', S, 'doubt', 1)
    end
    call('HDEL', S .. ':noted', parcel)
    add(':noted_flows', slip[FLOW], -1)
    forgotten[#forgotten + 1] = call('HINCRBY', S, 'number', 1)
    forgotten[#forgotten + 1] = raw
  end
  call('UNLINK', S .. ':noted:' .. lane)
end

-- Leases

local function key_of(number)
  return string.format('%016.0f', number)
end

local function put_lease(key, parcel, worker, ranges, since, deadline)
  call('HSET', S .. ':leases', key, cmsgpack.pack({ parcel, worker, ranges }))
  call('ZADD', S .. ':deadlines', deadline, key)
  call('ZADD', S .. ':sinces', since, key)
  if ORDERED then
    call('SADD', S .. ':leases:' .. lane_of(slip_of(parcel)), key)
  end
end

local function drop_lease(key, lane)
  call('HDEL', S .. ':leases', key)
  call('ZREM', S .. ':deadlines', key)
  call('ZREM', S .. ':sinces', key)
  if ORDERED then
    call('SREM', S .. ':leases:' .. lane, key)
  end
end

-- The lease's { parcel, worker, ranges }, or nil if there is none such now.
local function lease_of(key)
  local record = call('HGET', S .. ':leases', key)
  return record and cmsgpack.unpack(record) or nil
end

-- Take places from a lease; what becomes of them is up to the caller.
local function let_go(key, lease, rest, lane, count)
  add(':out', lane, -count)
  if #rest == 0 then
    drop_lease(key, lane)
  else
    call('HSET', S .. ':leases', key, cmsgpack.pack({ lease[1], lease[2], rest }))
  end
  if ORDERED then
    put_into_free(lane)
  end
end

-- Lease cuts ({ parcel, ranges, worker, return }), and answer with them: the time, the deadline, then one
-- { number, place of the parcel in the next list, worker, ranges, return } each, then slip and body of each
-- parcel, the body only where the caller doesn't know it.
local function leased(cuts, time, microseconds, known)
  local leases, parcels, seen = {}, {}, {}
  local number = call('HINCRBY', S, 'number', #cuts) - #cuts
  for i, one in ipairs(cuts) do
    local parcel, ranges, worker = one[1], one[2], one[3]
    put_lease(key_of(number + i), parcel, worker, ranges, time, time + microseconds)
    if not seen[parcel] then
      seen[parcel] = #parcels
      parcels[#parcels + 1] = call('HGET', S .. ':parcels', parcel) or incomplete()
      parcels[#parcels + 1] = not (known and known[parcel])
        and (call('HGET', S .. ':bodies', parcel) or incomplete())
    end
    leases[i] = { number + i, seen[parcel], worker, ranges, one[4] }
  end
  return { time, time + microseconds, leases, parcels }
end
