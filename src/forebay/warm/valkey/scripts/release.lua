-- Make messages ready again, in their place.
-- ARGV[4]  { { number, epoch, ranges of offsets } … }
go_on_when_full()
local epoch = current()
for _, want in ipairs(cmsgpack.unpack(ARGV[4])) do
  local key = key_of(want[1])
  local lease = want[2] == epoch and lease_of(key)
  if lease then
    local slip = slip_of(lease[1])
    local inside, rest = split(lease[3], places_of(slip, want[3]))
    if #inside > 0 then
      local lane = lane_of(slip)
      -- A partition with something out isn't free, so nothing has to be taken from there.
      for i = 1, #inside, 2 do
        make_ready(slip, lease[1], lane, inside[i], inside[i + 1])
      end
      let_go(key, lease, rest, lane, total(inside))
    end
  end
end
return 'OK'
