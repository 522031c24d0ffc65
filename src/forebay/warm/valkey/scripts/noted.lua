-- The slips of the oldest noted parcels: the lanes in their own order, merged by id.
-- ARGV[4]  the fill's number
-- ARGV[5]  about how many messages
-- ARGV[6]  '' for all lanes, or '=' and the only partition
-- ARGV[7]… flows to pass over: those of a lane's first parcel
local CHUNK = 100
local refusal = fill_refusal(ARGV[4])
if refusal then
  return refusal
end
local messages, besides = tonumber(ARGV[5]), {}
for i = 7, #ARGV do
  besides[ARGV[i]] = true
end

-- The first parcel of a lane comes from `noted_heads`, chunk by chunk; the others are looked up in the lane.
local ahead, at, position = {}, 1, 0

local function entry_of(lane, index)
  local parcel = call('ZRANGE', S .. ':noted:' .. lane, index, index)[1]
  if not parcel then
    return nil
  end
  local raw = call('HGET', S .. ':noted', parcel)
  local slip = cmsgpack.unpack(raw)
  return { id = id_at(slip, 0), raw = raw, slip = slip, lane = lane, index = index }
end

local function next_lane()
  while true do
    if at > #ahead then
      ahead = call('ZRANGE', S .. ':noted_heads', position, position + CHUNK - 1)
      position, at = position + #ahead, 1
      if #ahead == 0 then
        return nil
      end
    end
    local entry = entry_of(string.sub(ahead[at], 20), 0)
    at = at + 1
    if not besides[entry.slip[FLOW]] then
      return entry
    end
  end
end

-- Lanes that have been begun, by the id of their next parcel; and the first of those that haven't.
local begun, fresh, found = {}, nil, {}
if ARGV[6] == '' then
  fresh = next_lane()
else
  begun[1] = entry_of(string.sub(ARGV[6], 2), 0)
end
while true do
  local entry = begun[1]
  if fresh and (not entry or fresh.id < entry.id) then
    entry, fresh = fresh, next_lane()
  elseif entry then
    table.remove(begun, 1)
  else
    break
  end
  local count = entry.slip[COUNT]
  if #found > 0 and messages < count then
    break
  end
  found[#found + 1] = entry.raw
  messages = messages - count
  local following = entry_of(entry.lane, entry.index + 1)
  if following then
    local place = 1
    while begun[place] and begun[place].id < following.id do
      place = place + 1
    end
    table.insert(begun, place, following)
  end
end
return found
