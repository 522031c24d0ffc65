-- Lease up to ARGV[4] messages to the worker ARGV[5] for ARGV[6] microseconds.
-- ARGV[7]  { names of parcels whose bodies the caller has … }
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
  while count > 0 do
    local free = call('ZPOPMIN', S .. ':free')[1]
    if not free then
      return
    end
    count = count - cut(string.sub(free, 20), count, cuts)
  end
end

if ORDERED then
  take_partitions()
else
  take_flows()
end
for _, one in ipairs(cuts) do
  one[3] = ARGV[5]
end
local known = {}
for _, parcel in ipairs(cmsgpack.unpack(ARGV[7])) do
  known[parcel] = true
end
return leased(cuts, now(), tonumber(ARGV[6]), known)
