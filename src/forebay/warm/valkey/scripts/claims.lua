-- The names of all parcels, on the shelf or noted. ARGV[4] is the fill's number.
local refusal = fill_refusal(ARGV[4])
if refusal then
  return refusal
end
return { call('HKEYS', S .. ':parcels'), call('HKEYS', S .. ':noted') }
