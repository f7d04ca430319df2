-- Small values with versions and ttls: key -> MessagePack [version, until, value, who wrote it], with their keys in order beside them,
-- so that whoever looks for some of them does not read what others keep here.
--
-- KEYS   1 the values (a hash: `k` and the key, and `version`, the newest of all), 2 their keys in order, 3 when they end
-- ARGV   1 time in ms (empty: the server's own), 2 get | put | delete | scan | clear | forget, 3 key, prefix or first key,
--        then for put: the value, the version expected ('' when it must be missing), ttl in ms ('' for ever), the
--        call's name: sent again because its reply was lost, it gets the version of its first run;
--        for scan: where to begin ([key or, beyond it, (key), how many at most (-1: all); for clear: the key to stop
--        before, how many at most; for forget: how many at most. What is put below gate/ (claims, pauses, breakers: what
--        brings a full server down again) works above maxmemory.
-- Gives  get: {version, value} or nothing; put: the new version or nothing; scan: key, version, value, ...; clear and
--        forget: how many are gone
local VALUES, NAMES, ENDS = KEYS[1], KEYS[2], KEYS[3]
local STEP = 1000
local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(ARGV[1])
end

local function alive(key)
  local stored = redis.call('HGET', VALUES, 'k' .. key)
  if not stored then return nil end
  local entry = cmsgpack.unpack(stored)
  if entry[2] > 0 and entry[2] <= now then return nil end
  return entry
end

local function remove(names)
  for _, name in ipairs(names) do
    redis.call('HDEL', VALUES, 'k' .. name) -- names without a value are nothing: another try takes them away
    redis.call('ZREM', NAMES, name)
    redis.call('ZREM', ENDS, name)
  end
  return #names
end

local function scan(prefix, from, limit)
  local answer, found = {}, 0
  local behind = '(' .. prefix .. '\255'  -- no text has this byte
  while true do
    local names = redis.call('ZRANGEBYLEX', NAMES, from, behind, 'LIMIT', 0, STEP)
    for _, name in ipairs(names) do
      local entry = alive(name)
      if entry then
        if found == limit then return answer end
        found = found + 1
        answer[#answer + 1] = name
        answer[#answer + 1] = entry[1]
        answer[#answer + 1] = entry[3]
      end
    end
    if #names < STEP then return answer end
    from = '(' .. names[#names]
  end
end

local what, key = ARGV[2], ARGV[3]
if what == 'get' then
  local entry = alive(key)
  return entry and {entry[1], entry[3]} or false
elseif what == 'put' then
  local entry = alive(key)
  if entry and entry[4] == ARGV[7] then return entry[1] end
  if (entry and string.format('%.0f', entry[1]) or '') ~= ARGV[5] then return false end
  if string.sub(key, 1, 5) == 'gate/' then redis.call('HDEL', VALUES, '') end -- allowed above maxmemory; the rest then is
  local version = redis.call('HINCRBY', VALUES, 'version', 1)
  local ends = ARGV[6] == '' and 0 or now + tonumber(ARGV[6])
  -- The value comes behind what finds it: a script that ends between them has changed nothing that can be seen.
  redis.call('ZADD', NAMES, 0, key)
  if ends > 0 then redis.call('ZADD', ENDS, ends, key) end
  redis.call('HSET', VALUES, 'k' .. key, cmsgpack.pack({version, ends, ARGV[4], ARGV[7]}))
  if ends == 0 then redis.pcall('ZREM', ENDS, key) end
  return version
elseif what == 'delete' then
  return remove({key})
elseif what == 'scan' then
  return scan(key, ARGV[4], tonumber(ARGV[5]))
elseif what == 'clear' then
  return remove(redis.call('ZRANGEBYLEX', NAMES, '[' .. key, '(' .. ARGV[4], 'LIMIT', 0, ARGV[5]))
end
local due, ended = redis.call('ZRANGEBYSCORE', ENDS, '-inf', now, 'LIMIT', 0, ARGV[4]), {}
for _, name in ipairs(due) do
  if alive(name) then redis.call('ZREM', ENDS, name) else ended[#ended + 1] = name end -- it was written anew
end
remove(ended)
return #due
