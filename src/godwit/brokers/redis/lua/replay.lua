-- Let dead letters of one queue wait again as new copies, all or none.
--
-- KEYS   1 meta, 2 journal, then 15 keys for each group
-- ARGV   1 time, 2 queue, 3 `check` to look for room only, else `do`, 4 number of groups, 5 max_size, 6 max_bytes (0: no
--        limit), 7 number of lanes, 8 1 when the journal keeps bodies, 9 number of letters, 10 the actor or '', then the
--        groups' names, then per letter: number of its group, its number; last the call's name (see _receipt.lua). No
--        letter twice.
-- Gives  {'full', group, limit} when a group is full: nothing has changed then. Else {'ok', indexes (from 1) of letters
--        that do not exist}.
-- Begins with a command that is refused above maxmemory.
local fields = {}
for g = 1, tonumber(ARGV[4]) do fields[g] = 'g:' .. ARGV[10 + g] end
--@include _step
--@include _copies
--@include _receipt
local checking, groups, max_size, max_bytes = ARGV[3] == 'check', tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local lanes, bodies, n = tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9])
local function answer_of(missing)
  local answer = {'ok'}
  for n = 1, #missing do answer[1 + n] = missing[n] end
  return answer
end
local found, missing, order = {}, {}, {} -- groups in the order of their first letter in the call
for g = 1, groups do
  found[g] = {}
  gauge(2 + (g - 1) * BLOCK, ARGV[10 + g], kept[3 + g])
end
for i = 1, n do
  local at = 10 + groups + 2 * (i - 1)
  local g, number = tonumber(ARGV[at + 1]), ARGV[at + 2]
  local entry = redis.call('XRANGE', KEYS[2 + (g - 1) * BLOCK + LETTERS], number .. '-0', number .. '-0')[1]
  if entry then
    local c = parse(entry[2][6])
    c.letter = entry[1]
    if #found[g] == 0 then order[#order + 1] = g end
    table.insert(found[g], c)
  else
    missing[#missing + 1] = i
  end
end
for g = 1, groups do
  local b, bytes = 2 + (g - 1) * BLOCK, 0
  for _, c in ipairs(found[g]) do bytes = bytes + c.size end
  if #found[g] > 0 and max_size > 0 and depth(b) + #found[g] > max_size then return {'full', ARGV[10 + g], 'max_size'} end
  if #found[g] > 0 and max_bytes > 0 and gauges[b].bytes + bytes > max_bytes then return {'full', ARGV[10 + g], 'max_bytes'} end
end
if checking then return answer_of(missing) end
redis.call('HSET', meta, 'w', '') -- refused above maxmemory, before anything else has changed

local function lane_of(priority)
  if lanes == 1 or priority <= 20 then return 0 end
  return priority <= 60 and 1 or (priority <= 80 and 2 or 3)
end

for _, g in ipairs(order) do
  local b, rows = 2 + (g - 1) * BLOCK, {}
  local ordered = redis.call('HGET', KEYS[b + GROUP], 'ordered') == '1'
  for place, c in ipairs(found[g]) do
    drop('XDEL', KEYS[b + LETTERS], c.letter)
    local former = c.seq
    local at, _, _, _, _, priority, _, _, deliver_at, _, schedule, campaign = unpack_limit(c.blob, 11, 0)
    pseq = pseq + 1
    c.seq, c.ready, c.expiry, c.attempt, c.failures, c.crashes, c.returned = pseq, now, 0, 0, 0, 0, 0
    c.lane = lane_of(priority)
    if ordered and text(c.key) then c.lane = lanes == 1 and 0 or 1 end
    admit(b, c, ordered)
    local after, origin = unpack_limit(c.blob, 1, at) -- replay_of, and the marks of a message that has some
    local body, length, marks = bodies and string.sub(c.blob, after + 1) or '\192', '\017', ''
    if type(origin) == 'table' then length, marks = '\019', pack(origin[2] or nil, origin[3] or nil) end
    rows[place] = '\220\000' .. length .. pack(c.id, c.seq, 0, 1, c.type, priority, c.lane, text(c.key))
      .. pack(now, deliver_at or nil, nil, c.size, text(schedule), text(campaign), c.id) .. body .. pack(former) .. marks
  end
  write('replayed', ARGV[10 + g], nil, depth(b), rows, nil, text(ARGV[10]))
end
receipt(answer_of(missing))
save()
return answer_of(missing)
