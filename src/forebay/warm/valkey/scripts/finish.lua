-- Take messages off the shelf.
-- ARGV[4]  { { number, epoch, ranges of offsets } … }
go_on_when_full()
local epoch = current()
for _, want in ipairs(cmsgpack.unpack(ARGV[4])) do
  local key = key_of(want[1])
  local lease = want[2] == epoch and lease_of(key)
  if lease then
    local parcel = lease[1]
    local slip = slip_of(parcel)
    local inside, rest = split(lease[3], places_of(slip, want[3]))
    if #inside > 0 then
      local lane, count = lane_of(slip), total(inside)
      let_go(key, lease, rest, lane, count)
      call('HINCRBY', S, 'messages', -count)
      add(':flows', slip[FLOW], -count)
      if add(':left', parcel, -count) == 0 then
        call('HINCRBY', S, 'bytes', -slip[SIZE])
        call('HDEL', S .. ':parcels', parcel)
        call('HDEL', S .. ':bodies', parcel)
      end
      close_lane_if_empty(lane)
    end
  end
end
return 'OK'
