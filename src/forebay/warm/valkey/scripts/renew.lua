-- Begin a new epoch on an empty shelf, unless the shelf is in another one than the caller (ARGV[1]) has lost.
-- ARGV[4]  the new epoch
local epoch = current()
if epoch and epoch ~= ARGV[1] then
  return epoch
end
for _, lane in ipairs(call('ZRANGE', S .. ':lanes', 0, -1)) do
  call('UNLINK', S .. ':runs:' .. lane, S .. ':noted:' .. lane, S .. ':leases:' .. lane)
end
for _, key in ipairs({
  'lanes', 'ready', 'out', 'free', 'parcels', 'bodies', 'left', 'flows', 'leases', 'deadlines', 'sinces', 'noted',
  'noted_flows', 'noted_heads', 'returns',
}) do
  call('UNLINK', S .. ':' .. key)
end
call('UNLINK', S)
call('HSET', S, 'epoch', ARGV[4], 'run', string.match(call('INFO', 'server'), 'run_id:(%x+)'))
return ARGV[4]
