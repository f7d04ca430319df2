-- Say how much a queue holds, from counters and lengths that the server keeps.
--
-- KEYS   1 meta, then 15 keys for each group
-- ARGV   1 time and 2 queue (not used), then the groups' names
-- Gives  {published, duplicates, then per group: depth, delayed, blocked, leased, dead, bytes, leased bytes, dropped}.
local GROUP, DELAYED, BLOCKED, LEASES, LETTERS, BLOCK = 1, 8, 9, 11, 14, 15
local fields = {'s', 'duplicates'}
for g = 1, #ARGV - 2 do fields[2 + g] = 'g:' .. ARGV[2 + g] end
local kept = redis.call('HMGET', KEYS[1], unpack(fields))
local published, _ = 0, nil
if kept[1] then _, _, _, _, _, _, published = cmsgpack.unpack_limit(kept[1], 6, 0) end
local answer = {published, tonumber(kept[2] or 0)}
for g = 1, #ARGV - 2 do
  local b, depth, bytes, leased = 1 + (g - 1) * BLOCK, 0, 0, 0
  if kept[2 + g] then _, depth, bytes, leased = cmsgpack.unpack_limit(kept[2 + g], 3, 0) end
  for _, number in ipairs({
    depth, redis.call('ZCARD', KEYS[b + DELAYED]), redis.call('ZCARD', KEYS[b + BLOCKED]),
    redis.call('ZCARD', KEYS[b + LEASES]), redis.call('XLEN', KEYS[b + LETTERS]), bytes, leased,
    tonumber(redis.call('HGET', KEYS[b + GROUP], 'dropped') or 0),
  }) do answer[#answer + 1] = number end
end
return answer
