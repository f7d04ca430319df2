-- Let leases of one queue end some time from now.
--
-- KEYS   1 meta, 2 journal, then 15 keys for each group
-- ARGV   1 time, 2 queue, 3 number of groups, 4 number of leases (at most 200), 5 length in ms, then the groups' names,
--        then per lease: number of its group, lease member
-- Gives  the indexes (from 1) of those that were not, or no longer, leased: they change nothing but the journal.
-- Works above maxmemory.
local fields = {}
for g = 1, tonumber(ARGV[3]) do fields[g] = 'g:' .. ARGV[5 + g] end
--@include _step
--@include _copies
local groups, n, length = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if not epoch then
  local all = {}
  for i = 1, n do all[i] = i end
  return all
end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local order, rows, refused = {}, {}, {}
for g = 1, groups do gauge(2 + (g - 1) * BLOCK, ARGV[5 + g], kept[3 + g]) end
for i = 1, n do
  local g, member = tonumber(ARGV[5 + groups + 2 * i - 1]), ARGV[5 + groups + 2 * i]
  local b = 2 + (g - 1) * BLOCK
  local c = at_member(b, member)
  if not c then
    refused[#refused + 1] = {g, member, i}
  else
    redis.call('ZADD', KEYS[b + LEASES], now + length, member)
    undo(function() redis.call('ZADD', KEYS[b + LEASES], c.deadline, member) end)
    if length ~= c.length then
      put(KEYS[b + BATCHES], {member, length})
      local shortest = redis.call('HGET', KEYS[b + GROUP], 'shortest')
      if shortest and length < tonumber(shortest) then put(KEYS[b + GROUP], {'shortest', length}) end
    end
    local key = g .. ':' .. c.worker
    if not rows[key] then
      rows[key] = {}
      order[#order + 1] = {key, g, c.worker}
    end
    table.insert(rows[key], '\148' .. pack(c.id, c.seq, member, now + length))
  end
end
for _, one in ipairs(order) do
  write('extended', ARGV[5 + one[2]], one[3], depth(2 + (one[2] - 1) * BLOCK), rows[one[1]])
end
local indexes = {}
for place, one in ipairs(refused) do
  local b = 2 + (one[1] - 1) * BLOCK
  indexes[place] = one[3]
  if #one[2] > 0 and #one[2] <= 64 and gauges[b] then
    write('ack_refused', ARGV[5 + one[1]], nil, depth(b), {'\145' .. pack(one[2])})
  end
end
save()
return indexes
