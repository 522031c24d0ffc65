-- Up to ARGV[4] leases that are out, longest first: key, since, deadline, record and slip of each; and the epoch.
local epoch, found = current(), {}
if epoch then
  local keys = call('ZRANGE', S .. ':sinces', 0, tonumber(ARGV[4]) - 1, 'WITHSCORES')
  for i = 1, #keys, 2 do
    local record = call('HGET', S .. ':leases', keys[i])
    local slip = call('HGET', S .. ':parcels', cmsgpack.unpack(record)[1])
    found[#found + 1] = { keys[i], keys[i + 1], call('ZSCORE', S .. ':deadlines', keys[i]), record, slip }
  end
end
return { epoch or '', found }
