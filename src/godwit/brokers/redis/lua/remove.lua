-- Remove a queue, or one group, with all it holds. The journal and its counters stay.
--
-- KEYS   1 meta, 2 journal, 3 dedup0, 4 dedup1, 5 later, 6 inbox, then 15 keys for each group to go
-- ARGV   1 time, 2 queue, 3 version expected, 4 the group, or '' for the queue, 5 the groups left as JSON, 6 the
--        actor or '', then the names of the groups to go, last the call's name (see _receipt.lua)
-- Gives  {'stale'} when the version is another, else {'ok', new version}.
-- Works above maxmemory. Takes about 1 us of the server's time for each copy.
local fields = {'spec'}
--@include _step
--@include _copies
--@include _receipt
if not kept[4] or version ~= ARGV[3] then return {'stale'} end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local group, count, lowest, highest = ARGV[4], 0, nil, nil

local function counted(number)
  count = count + 1
  if not lowest or number < lowest then lowest = number end
  if not highest or number > highest then highest = number end
end

local function all_in(stream, seq_of)
  local last = '-'
  repeat
    local page = redis.call('XRANGE', stream, last, '+', 'COUNT', 500)
    for _, entry in ipairs(page) do
      counted(seq_of(entry))
      last = '(' .. entry[1]
    end
  until #page < 500
end

local function seq_in(value)
  local _, number = unpack_limit(value, 1, 0)
  return number
end

for g = 1, #ARGV - 7 do
  local b = 6 + (g - 1) * BLOCK
  for lane = 0, 3 do
    all_in(KEYS[b + LANE + lane], function(entry) return parse_entry(lane, entry[1], entry[2][2]).seq end)
  end
  all_in(KEYS[b + LETTERS], function(entry) return seq_in(entry[2][6]) end)
  for _, value in ipairs(redis.call('HVALS', KEYS[b + PARKED])) do counted(seq_in(value)) end
  put(meta, {'letters:' .. ARGV[6 + g], redis.call('HGET', KEYS[b + GROUP], 'letters') or 0})
  drop('HDEL', meta, 'g:' .. ARGV[6 + g])
  for at = 1, BLOCK - 1 do drop('UNLINK', KEYS[b + at]) end
  ring(b) -- those who wait there are told
  redis.call('PEXPIRE', KEYS[b + WAKE], 10000)
end
local row = {'\147' .. pack(count, lowest, highest)}
if group == '' then
  for n = 3, 5 do drop('UNLINK', KEYS[n]) end
  drop('HDEL', meta, 'spec')
  drop('HDEL', meta, 'groups')
  generation, began, until0, until1, until_later = 0, 0, 0, 0, 0
  write('queue_removed', nil, nil, 0, row, nil, text(ARGV[6]))
else
  put(meta, {'groups', ARGV[5]})
  write('group_removed', group, nil, 0, row, nil, text(ARGV[6]))
end
local next_version = count_up(meta, 'v', 1)
receipt({'ok', next_version})
save()
return {'ok', next_version}
