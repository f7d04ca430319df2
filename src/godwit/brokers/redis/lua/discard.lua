-- Delete dead letters of one queue.
--
-- KEYS   1 meta, 2 journal, then 15 keys for each group
-- ARGV   1 time, 2 queue, 3 the queue they went to ('' when they are just deleted), 4 number of groups, 5 number of
--        letters, 6 the actor or '', then the groups' names, then per letter: number of its group, its number; last the
--        call's name (see _receipt.lua)
-- Gives  the indexes (from 1) of letters that do not exist.
-- Works above maxmemory.
local fields = {}
for g = 1, tonumber(ARGV[4]) do fields[g] = 'g:' .. ARGV[6 + g] end
--@include _step
--@include _copies
--@include _receipt
local target, groups, n = text(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local missing, order, rows = {}, {}, {}
for g = 1, groups do gauge(2 + (g - 1) * BLOCK, ARGV[6 + g], kept[3 + g]) end
for i = 1, n do
  local at = 6 + groups + 2 * (i - 1)
  local g, id = tonumber(ARGV[at + 1]), ARGV[at + 2] .. '-0'
  local stream = KEYS[2 + (g - 1) * BLOCK + LETTERS]
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if entry then
    local c = parse(entry[2][6])
    drop('XDEL', stream, id)
    if not rows[g] then
      rows[g] = {}
      order[#order + 1] = g
    end
    table.insert(rows[g], '\147' .. pack(c.id, c.seq, target))
  else
    missing[#missing + 1] = i
  end
end
for _, g in ipairs(order) do
  write('discarded', ARGV[6 + g], nil, depth(2 + (g - 1) * BLOCK), rows[g], nil, text(ARGV[6]))
end
receipt(missing)
save()
return missing
