-- Small values with versions and ttls, all in one hash: `k` and the key -> MessagePack [version, until, value].
--
-- KEYS   1 the hash
-- ARGV   1 time in ms (empty: the server's own), 2 get | put | delete | scan | forget, 3 key or prefix,
--        then for put: the value, the version expected ('' when it must be missing), ttl in ms ('' for ever)
-- Gives  get: {version, value} or nothing; put: the new version or nothing; scan: key, version, value, ...
local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(ARGV[1])
end

local function alive(stored)
  if not stored then return nil end
  local entry = cmsgpack.unpack(stored)
  if entry[2] > 0 and entry[2] <= now then return nil end
  return entry
end

local what, key = ARGV[2], 'k' .. (ARGV[3] or '')
if what == 'get' then
  local entry = alive(redis.call('HGET', KEYS[1], key))
  return entry and {entry[1], entry[3]} or false
elseif what == 'put' then
  local entry = alive(redis.call('HGET', KEYS[1], key))
  if (entry and string.format('%.0f', entry[1]) or '') ~= ARGV[5] then return false end
  local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
  local ends = ARGV[6] == '' and 0 or now + tonumber(ARGV[6])
  redis.call('HSET', KEYS[1], key, cmsgpack.pack({version, ends, ARGV[4]}))
  return version
elseif what == 'delete' then
  return redis.call('HDEL', KEYS[1], key)
end
local answer, all = {}, redis.call('HGETALL', KEYS[1])
for n = 1, #all, 2 do
  if string.sub(all[n], 1, 1) == 'k' then
    local entry = alive(all[n + 1])
    if what == 'forget' then
      if not entry then redis.call('HDEL', KEYS[1], all[n]) end
    elseif entry and string.sub(all[n], 1, #key) == key then
      answer[#answer + 1] = string.sub(all[n], 2)
      answer[#answer + 1] = entry[1]
      answer[#answer + 1] = entry[3]
    end
  end
end
return answer
