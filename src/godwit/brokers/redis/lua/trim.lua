-- Drop what a queue's journal need not keep, at most 200 chunks per call.
--
-- KEYS   1 meta, 2 journal, 3 readers
-- ARGV   1 time, 2 queue, 3 journal_keep in ms, 4 journal_max_bytes
-- Gives  {rows dropped, 1 when there may be more}. A removed queue's journal without a row goes, with its readers.
-- Works above maxmemory.
local fields = {'spec'}
--@include _step
local MOST = 200
local keep_from, max_bytes = now - tonumber(ARGV[3]), tonumber(ARGV[4])
local size = journal_bytes
local read_by_all = seq
local readers = redis.call('HVALS', KEYS[3])
for _, reader in ipairs(readers) do read_by_all = math.min(read_by_all, tonumber(reader)) end
local gone, bytes, rows, unread = {}, 0, 0, 0

local function look(entry)
  local chunk = entry[2][2]
  local last = tonumber(string.sub(entry[1], 1, -3))
  local _, _, _, first, at = unpack_limit(chunk, 4, 1)
  local kept_on = size - bytes <= max_bytes and (at >= keep_from or last > read_by_all)
  return not kept_on, chunk, first, last
end

-- Nearly always even the oldest is kept: others are not read for that.
local oldest = redis.call('XRANGE', journal, '-', '+', 'COUNT', 1)[1]
if not oldest and not kept[4] then redis.call('UNLINK', journal, KEYS[3]) end
if not oldest or not look(oldest) then return {0, 0} end
for _, entry in ipairs(redis.call('XRANGE', journal, '-', '+', 'COUNT', MOST)) do
  local goes, chunk, first, last = look(entry)
  if not goes then break end
  gone[#gone + 1] = entry[1]
  bytes = bytes + #chunk
  rows = rows + last - first + 1
  if last > read_by_all then unread = unread + last - math.max(read_by_all, first - 1) end
end
if #gone > 0 then
  redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
  for n = 1, #gone do drop('XDEL', journal, gone[n]) end
  journal_bytes = journal_bytes - bytes
  if unread > 0 then count_up(meta, 'jd', unread) end
  save()
end
return {rows, #gone == MOST and 1 or 0}
