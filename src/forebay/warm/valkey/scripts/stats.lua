-- What the shelf holds, for the caller to add up: the time, messages, bytes, then slips and what is left of
-- parcels, leases, and noted slips.
if not current() then
  return { now() }
end
return {
  now(), number_at('', 'messages'), number_at('', 'bytes'),
  call('HGETALL', S .. ':parcels'), call('HGETALL', S .. ':left'), call('HVALS', S .. ':leases'),
  call('HVALS', S .. ':noted'),
}
