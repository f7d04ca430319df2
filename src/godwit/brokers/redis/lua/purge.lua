-- Delete everything that waits in one group: not what is leased or dead.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys
-- ARGV   1 time, 2 queue, 3 group, 4 the actor or '', 5 the call's name (see _receipt.lua)
-- Gives  how many copies were deleted. Takes about 2 us of the server's time for each.
-- Works above maxmemory.
local fields = {'g:' .. ARGV[3]}
--@include _step
--@include _copies
--@include _receipt
local b, name = 2, ARGV[3]
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local held = gauge(b, name, kept[4])
if not held then return 0 end
local count, bytes, lowest, highest = 0, 0, nil, nil

local function counted(c)
  count = count + 1
  bytes = bytes + c.size
  if not lowest or c.seq < lowest then lowest = c.seq end
  if not highest or c.seq > highest then highest = c.seq end
  if text(c.key) and redis.call('HGET', KEYS[b + HEADS], c.key) == format('%.0f', c.seq) then
    drop('HDEL', KEYS[b + HEADS], c.key)
  end
end

for lane = 0, 3 do
  local last = redis.call('HGET', KEYS[b + GROUP], 'c' .. lane)
  repeat
    local page = redis.call('XRANGE', KEYS[b + LANE + lane], last and '(' .. last or '-', '+', 'COUNT', 500)
    for _, entry in ipairs(page) do
      counted(parse_entry(lane, entry[1], entry[2][2]))
      drop('XDEL', KEYS[b + LANE + lane], entry[1])
      last = entry[1]
    end
  until #page < 500
end
local leased = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[b + LEASES], 0, -1)) do
  if string.sub(member, 1, 1) == 'p' then leased[string.sub(member, 2, string.find(member, ':', 1, true) - 1)] = true end
end
for _, ref in ipairs(redis.call('HKEYS', KEYS[b + PARKED])) do
  if not leased[ref] then
    counted(parse(redis.call('HGET', KEYS[b + PARKED], ref)))
    drop('HDEL', KEYS[b + PARKED], ref)
  end
end
for _, key in ipairs({AGAIN, DELAYED, BLOCKED, EXPIRING}) do drop('UNLINK', KEYS[b + key]) end
for lane = 0, 3 do
  held[lane] = 0
  drop('HDEL', KEYS[b + GROUP], 'y' .. lane)
end
if count > 0 then
  held.depth, held.bytes = held.depth - count, held.bytes - bytes
  write('purged', name, nil, depth(b), {'\147' .. pack(count, lowest, highest)}, nil, text(ARGV[4]))
end
if count > 0 then receipt(count) end
save()
return count
