-- Put parcels on the shelf, or note them; answers with the places of those noted in the list, from 0.
-- ARGV[4]  the fill's number
-- ARGV[5], ARGV[6]  the limits, in messages and bytes
-- ARGV[7]… the parcels: name, slip, body ('' for none)
local refusal = fill_refusal(ARGV[4])
if refusal then
  return refusal
end
local messages_max, bytes_max = tonumber(ARGV[5]), tonumber(ARGV[6])
local messages, bytes = number_at('', 'messages'), number_at('', 'bytes')
local only_noted = {}

local function first_noted(lane)
  return call('ZRANGE', S .. ':noted:' .. lane, 0, 0)[1]
end

local function head_id(parcel)
  return id_at(cmsgpack.unpack(call('HGET', S .. ':noted', parcel)), 0)
end

local function note(parcel, raw, slip, lane)
  if call('HSET', S .. ':noted', parcel, raw) == 0 then
    return
  end
  if not first_noted(lane) then
    call('ZADD', S .. ':noted_heads', 0, id_at(slip, 0) .. lane)
  end
  call('ZADD', S .. ':noted:' .. lane, call('HINCRBY', S, 'number', 1), parcel)
  add(':noted_flows', slip[FLOW], 1)
end

local function unnote(parcel, slip, lane)
  call('ZREM', S .. ':noted_heads', id_at(slip, 0) .. lane)
  call('ZREM', S .. ':noted:' .. lane, parcel)
  call('HDEL', S .. ':noted', parcel)
  add(':noted_flows', slip[FLOW], -1)
  local head = first_noted(lane)
  if head then
    call('ZADD', S .. ':noted_heads', 0, head_id(head) .. lane)
  end
end

for i = 7, #ARGV, 3 do
  local parcel, raw, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local slip = cmsgpack.unpack(raw)
  local lane, count = lane_of(slip), slip[COUNT]
  local before = first_noted(lane)
  open_lane(lane)
  if body ~= '' and (not before or before == parcel)
    and messages + count <= messages_max
    -- One message that has more bytes than the shelf may have comes to an empty one: it will never fit better.
    and (bytes + slip[SIZE] <= bytes_max or (count == 1 and messages == 0)) then
    if before then
      unnote(parcel, slip, lane)
    end
    messages, bytes = messages + count, bytes + slip[SIZE]
    slips[parcel] = slip
    call('HSET', S .. ':parcels', parcel, raw)
    call('HSET', S .. ':bodies', parcel, body)
    call('HSET', S .. ':left', parcel, count)
    add(':flows', slip[FLOW], count)
    if ORDERED then
      take_from_free(lane)
    end
    make_ready(slip, parcel, lane, 0, count)
    if ORDERED then
      put_into_free(lane)
    end
  else
    note(parcel, raw, slip, lane)
    only_noted[#only_noted + 1] = (i - 7) / 3
  end
end
call('HSET', S, 'messages', messages, 'bytes', bytes)
return only_noted
