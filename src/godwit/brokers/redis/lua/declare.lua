-- Create a queue and groups, or change their settings.
--
-- KEYS   1 meta, 2 journal, 3 inbox, then 15 keys for each group given
-- ARGV   1 time, 2 queue, 3 version expected ('' for a queue that does not exist), 4 the queue's settings as JSON,
--        5 all its groups' settings as JSON, 6 a random epoch for a new journal, 7 number of groups
--        given, 8 the version to give ('' for the next one: the first partition's, which the others take over), 9 the
--        publish_seq before the first, 10 number of partitions, then per group: name, its settings as JSON, 1 when it is
--        new, max_crashes, max_delivery_attempts, backoff minimum, backoff maximum, 1 for forgive_outages, flow control messages, flow
--        control bytes, 1 for message_ordering (0 for none); last the server's run id
-- Gives  {'stale'} when the version is another, {'type', key, found} when a key of another type is in the way: nothing
--        has changed then. Else {'ok', new version}.
local fields = {'spec'}
for g = 1, tonumber(ARGV[7]) do fields[1 + g] = 'g:' .. ARGV[11 + 11 * (g - 1)] end
--@include _step
--@include _copies
local present = kept[4] and version or ''
if present ~= ARGV[3] then return {'stale'} end
local TYPES = {
  'hash', 'stream', 'stream', 'stream', 'stream', 'hash', 'zset', 'zset', 'zset', 'hash', 'zset', 'hash', 'zset',
  'stream', 'zset',
}
local function wrong(key, wanted)
  local found = redis.call('TYPE', key)['ok']
  return found ~= 'none' and found ~= wanted and {'type', key, found}
end
local groups = tonumber(ARGV[7])
local trouble = wrong(journal, 'stream') or wrong(KEYS[3], 'stream')
for g = 1, groups do
  for place, wanted in ipairs(TYPES) do trouble = trouble or wrong(KEYS[3 + (g - 1) * BLOCK + place], wanted) end
end
if trouble then return trouble end

if not epoch then
  epoch = ARGV[6]
  pseq = tonumber(ARGV[9])
  put(meta, {'epoch', epoch})
end
local next_version = ARGV[8]
if next_version == '' then
  next_version = count_up(meta, 'v', 1)
else
  put(meta, {'v', next_version})
end
local partitions = tonumber(ARGV[10])
if partitions > tonumber(redis.call('HGET', meta, 'parts') or 1) then put(meta, {'parts', partitions}) end
if kept[4] and partitions > tonumber(string.match(kept[4], '"partitions":(%d+)') or 1) then
  put(meta, {'grown', now})
end
put(meta, {'spec', ARGV[4], 'groups', ARGV[5]})
if present == '' then
  published = 0
  put(meta, {'duplicates', 0})
  write('queue_created', nil, nil, nil, {'\145' .. string.char(0xc6) .. struct.pack('>I4', #ARGV[4]) .. ARGV[4]})
end
for g = 1, groups do
  local b, at = 3 + (g - 1) * BLOCK, 10 + 11 * (g - 1)
  local name, spec, new = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == '1'
  local held = gauge(b, name, kept[4 + g] or pack(0, 0, 0, 0, 0, 0, 0, 0, 0))
  held.saved = kept[4 + g]
  held.flow = (ARGV[at + 9] ~= '0' or ARGV[at + 10] ~= '0') and 1 or 0
  put(KEYS[b + GROUP], {'mc', ARGV[at + 4], 'ma', ARGV[at + 5], 'bmin', ARGV[at + 6], 'bmax', ARGV[at + 7],
    'fo', ARGV[at + 8], 'fm', ARGV[at + 9], 'fb', ARGV[at + 10], 'ordered', ARGV[at + 11]})
  if new then
    put(KEYS[b + GROUP], {'looked', now, 'run', ARGV[#ARGV], 'dropped', 0, 'pulls', 0,
      'letters', redis.call('HGET', meta, 'letters:' .. name) or 0})
    drop('HDEL', meta, 'letters:' .. name)
    write('group_created', name, nil, 0, {'\145' .. string.char(0xc6) .. struct.pack('>I4', #spec) .. spec})
  end
  ring(b) -- other limits may let more through
end
save()
return {'ok', next_version}
