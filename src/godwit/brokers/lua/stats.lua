-- Say how much a queue holds, from lengths that the server keeps.
--
-- KEYS   1 meta, then 15 keys for each group
-- ARGV   1 time and 2 queue (not used), 3 number of groups
-- Gives  {published, duplicates, then per group: depth, delayed, blocked, leased, dead, bytes, leased bytes, dropped}.
local GROUP, LANE, PARKED, DELAYED, BLOCKED, LEASES, LETTERS, BLOCK = 1, 2, 6, 8, 9, 11, 14, 15
local counts = redis.call('HMGET', KEYS[1], 'published', 'duplicates')
local answer = {tonumber(counts[1] or 0), tonumber(counts[2] or 0)}
for g = 1, tonumber(ARGV[3]) do
  local b = 1 + (g - 1) * BLOCK
  local depth = redis.call('HLEN', KEYS[b + PARKED])
  for lane = 0, 3 do depth = depth + redis.call('XLEN', KEYS[b + LANE + lane]) end
  local sums = redis.call('HMGET', KEYS[b + GROUP], 'bytes', 'lbytes', 'dropped')
  for _, number in ipairs({
    depth, redis.call('ZCARD', KEYS[b + DELAYED]), redis.call('ZCARD', KEYS[b + BLOCKED]),
    redis.call('ZCARD', KEYS[b + LEASES]), redis.call('XLEN', KEYS[b + LETTERS]),
    tonumber(sums[1] or 0), tonumber(sums[2] or 0), tonumber(sums[3] or 0),
  }) do answer[#answer + 1] = number end
end
return answer
