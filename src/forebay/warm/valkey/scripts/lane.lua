-- How many messages are ready and out of the partition ARGV[5], and how many parcels are noted.
-- ARGV[4]  the fill's number
local refusal = fill_refusal(ARGV[4])
if refusal then
  return refusal
end
local lane = ARGV[5]
return { number_at(':ready', lane), number_at(':out', lane), call('ZCARD', S .. ':noted:' .. lane) }
