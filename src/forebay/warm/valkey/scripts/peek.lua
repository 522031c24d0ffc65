-- The first ARGV[4] ready messages, in the order of their time and id, as { slip, body, first, last } of runs.
if not current() then
  return {}
end
local count, found = tonumber(ARGV[4]), {}
local lanes = {}
if ORDERED then
  for i, entry in ipairs(call('ZRANGE', S .. ':free', 0, count - 1)) do
    lanes[i] = string.sub(entry, 20)
  end
else
  lanes = call('ZRANGE', S .. ':lanes', 0, -1)
end
for _, lane in ipairs(lanes) do
  for _, run in ipairs(call('ZRANGE', S .. ':runs:' .. lane, 0, count - 1)) do
    local id, first, last, parcel = string.match(run, '^(%d+):(%d+):(%d+):(.*)$')
    found[#found + 1] = {
      since = slip_of(parcel)[SINCE], id = id, first = tonumber(first), last = tonumber(last), parcel = parcel,
    }
  end
end
table.sort(found, function(a, b)
  if a.since ~= b.since then
    return a.since < b.since
  end
  return a.id < b.id
end)
local answer = {}
for _, run in ipairs(found) do
  if count <= 0 then
    break
  end
  local last = math.min(run.last, run.first + count)
  count = count - (last - run.first)
  answer[#answer + 1] = {
    call('HGET', S .. ':parcels', run.parcel) or incomplete(),
    call('HGET', S .. ':bodies', run.parcel) or incomplete(),
    run.first, last,
  }
end
return answer
