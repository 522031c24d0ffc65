-- Lease up to ARGV[4] messages to the worker ARGV[5] for ARGV[6] microseconds.
-- ARGV[7]  { names of parcels whose bodies the caller has … }
-- ARGV[8]  of how many partitions at most, or '' for any number
-- ARGV[9], ARGV[10]  if they are given: the one partition, and the number of a lease on what is before ('' for none)
if not is_current() then
  return LOST
end
go_on_when_full()
local count, cuts = tonumber(ARGV[4]), {}

-- `forebay.warm.sharing.share`, line by line.
local function share(out, ready, left)
  local shares, open = {}, {}
  for i = 1, #out do
    shares[i] = 0
    if ready[i] > 0 then
      open[#open + 1] = i
    end
  end
  while left > 0 and #open > 0 do
    local level, above = math.huge, math.huge
    for _, i in ipairs(open) do
      level = math.min(level, out[i] + shares[i])
    end
    local lowest, rise = {}, math.huge
    for _, i in ipairs(open) do
      if out[i] + shares[i] == level then
        lowest[#lowest + 1] = i
        rise = math.min(rise, ready[i] - shares[i])
      else
        above = math.min(above, out[i] + shares[i])
      end
    end
    rise = math.min(rise, math.max(1, math.floor(left / #lowest)), above - level)
    for _, i in ipairs(lowest) do
      local given = math.min(rise, left)
      shares[i] = shares[i] + given
      left = left - given
    end
    local still = {}
    for _, i in ipairs(open) do
      if shares[i] < ready[i] then
        still[#still + 1] = i
      end
    end
    open = still
  end
  return shares
end

local function take_flows()
  local lanes = call('ZRANGE', S .. ':lanes', 0, -1)
  if #lanes == 1 then
    cut(lanes[1], count, cuts)
    return
  end
  local out, ready = {}, {}
  for i, lane in ipairs(lanes) do
    out[i], ready[i] = number_at(':out', lane), number_at(':ready', lane)
  end
  for i, part in ipairs(share(out, ready, count)) do
    if part > 0 then
      cut(lanes[i], part, cuts)
    end
  end
end

local function take_partitions()
  local left = tonumber(ARGV[8]) or math.huge
  while count > 0 and left > 0 do
    left = left - 1
    local free = call('ZPOPMIN', S .. ':free')[1]
    if not free then
      return
    end
    count = count - cut(string.sub(free, 20), count, cuts)
  end
end

local function take_partition(lane)
  local behind = ARGV[10] ~= '' and lease_of(key_of(tonumber(ARGV[10])))
  local is_mine = behind and lane_of(slip_of(behind[1])) == lane
  if is_mine or number_at(':out', lane) == 0 then
    take_from_free(lane)
    cut(lane, count, cuts)
  end
end

if ARGV[9] then
  take_partition(ARGV[9])
elseif ORDERED then
  take_partitions()
else
  take_flows()
end
local return_of_all = ORDERED and call('HGET', S, 'return_of_all') or nil
local has_returns = ORDERED and call('EXISTS', S .. ':returns') == 1
for _, one in ipairs(cuts) do
  one[3] = ARGV[5]
  one[4] = return_of_all or (has_returns and call('HGET', S .. ':returns', lane_of(slip_of(one[1])))) or nil
end
local known = {}
for _, parcel in ipairs(cmsgpack.unpack(ARGV[7])) do
  known[parcel] = true
end
return leased(cuts, now(), tonumber(ARGV[6]), known)
