-- Ack leases of one worker: the fast way for what `settle` does too, for rows that the client could encode.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys; the group does not keep the order of keys
-- ARGV   1 time, 2 queue, 3 group, 4 worker, 5 number of acks n (at most 200, each lease once),
--        then n lease members, n sizes, n journal rows
-- Gives  the indexes (from 1) of those that were not, or no longer, leased: they change nothing but the journal.
-- Works above maxmemory.
--@include _step
local GROUP, LANE, PARKED, LEASES, WAKE = 1, 2, 6, 11, 15
local b, name, worker, n = 2, ARGV[3], ARGV[4], tonumber(ARGV[5])
local sizes, texts = 5 + n, 5 + 2 * n
local state = redis.call('HMGET', KEYS[b + GROUP], 'looked', 'flow', 'bytes', 'lbytes')
if not state[1] then
  local all = {}
  for i = 1, n do all[i] = i end
  return all
end
local scores = redis.call('ZMSCORE', KEYS[b + LEASES], unpack(ARGV, 6, 5 + n))
local gone, members, rows, bytes, refused, refused_rows = {}, {}, {}, 0, {}, {}
for i = 1, n do
  local member = ARGV[5 + i]
  if scores[i] then
    local source, colon = string.sub(member, 1, 1), string.find(member, ':', 1, true)
    local refs = gone[source]
    if not refs then
      refs = {}
      gone[source] = refs
    end
    refs[#refs + 1] = string.sub(member, 2, colon - 1)
    members[#members + 1] = member
    bytes = bytes + ARGV[sizes + i]
    rows[#rows + 1] = ARGV[texts + i]
  else
    refused[#refused + 1] = i
    if #member > 0 and #member <= 64 then refused_rows[#refused_rows + 1] = '\145' .. pack(member) end
  end
end
if #members > 0 then
  redis.call('ZREM', KEYS[b + LEASES], unpack(members))
  for source, refs in pairs(gone) do
    if source == 'p' then
      redis.call('HDEL', KEYS[b + PARKED], unpack(refs))
    else
      redis.call('XDEL', KEYS[b + LANE + tonumber(source)], unpack(refs))
    end
  end
  redis.call('HSET', KEYS[b + GROUP], 'bytes', state[3] - bytes, 'lbytes', state[4] - bytes)
  if state[2] == '1' then redis.call('ZADD', KEYS[b + WAKE], 0, 'w') end
else
  redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
end
local after = redis.call('HLEN', KEYS[b + PARKED])
for lane = 0, 3 do after = after + redis.call('XLEN', KEYS[b + LANE + lane]) end
write('acked', name, worker, after, rows)
for i = 1, #refused_rows do write('ack_refused', name, nil, after, {refused_rows[i]}) end
save()
return refused
