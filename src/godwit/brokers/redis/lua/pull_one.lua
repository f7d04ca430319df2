-- Lease the message whose arrival took the marker off, when nothing else waits in its group: the shortest way for what
-- `pull` does too. It waits on the server behind the command that takes markers off.
--
-- KEYS   1 meta, 2 journal, 3 group, 4 leases, 5 batches, 6 wake, 7 to 10 the streams of the lanes
-- ARGV   1 time, 2 queue, 3 group, 4 field of meta with what the group holds, 5 worker, 6 lease in ms, 7 a token that no pull
--        had before, last the server's run id, before it the application's version where it has one
-- Gives  what `pull` gives, without what is due or in the inbox, or {'idle'} when it is not so simple: no marker was taken
--        off, other messages wait, the message was delivered before or has expired, flow control is on, leases are to be
--        forgiven. Nothing has changed then; `pull` is the way. Leases and delays that are due are left to it.
-- Works above maxmemory.
local pack, unpack_limit, format, call = cmsgpack.pack, cmsgpack.unpack_limit, string.format, redis.call
local meta, field, name, worker, token = KEYS[1], ARGV[4], ARGV[3], ARGV[5], ARGV[7]
local kept = call('HMGET', meta, 'epoch', 'v', 's', field)
if not kept[3] or not kept[4] then return {'idle'} end
local _, depth, bytes, leased_bytes, flow, e0, e1, e2, e3, rung = unpack_limit(kept[4], 9, 0)
local lane = rung - 2
if lane < 0 or flow == 1 or call('EXISTS', KEYS[6]) == 1 then return {'idle'} end
local leased = call('ZCARD', KEYS[4])
if depth - leased ~= 1 then return {'idle'} end
--@include _brief
local cursor, source = 'c' .. lane, format('%d', lane)
local conf = call('HMGET', KEYS[3], 'looked', 'shortest', 'run', 'pulls', 'ordered', 'fo', cursor)
local length, shortest = tonumber(ARGV[6]), tonumber(conf[2])
if conf[3] ~= ARGV[#ARGV] or (leased > 0 and conf[6] == '1' and now - conf[1] > (shortest or 0)) then return {'idle'} end

-- See _copies.lua for the forms of a lane's entry.
local found = call('XRANGE', KEYS[7 + lane], conf[7] and '(' .. conf[7] or '-', '+', 'COUNT', 1)[1]
if not found then return {'idle'} end
local ref, value, from = found[1], found[2][2], 0
local dash = string.find(ref, '-', 1, true)
if #ref - dash == 16 then
  if string.byte(ref, dash + 1) ~= 56 then return {'idle'} end
  local expiry
  from, expiry = unpack_limit(value, 1, 0)
  if expiry <= now then return {'idle'} end
end
local till, size = unpack_limit(value, 4, from)

local member = source .. ref .. ':' .. token
local who = #ARGV > 8 and {worker, ARGV[8]} or worker
local chunk = '\155' .. pack(3, kept[1], seq + 1, now, ARGV[2], name, who, depth, token, now + length) .. '\145\149'
  .. pack(source .. ref) .. string.sub(value, from + 1, till)
call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local noted
local ok, problem = pcall(function()
  call('ZADD', KEYS[4], format('%d', now + length), member)
  call('HSET', KEYS[5], token, pack({worker, now, length}))
  noted = call('XADD', KEYS[2], format('%d-0', seq + 1), 'c', chunk)
  if leased > 0 and shortest and shortest <= length then length = shortest end
  call('HSET', KEYS[3], 'looked', format('%d', now), 'pulls', (conf[4] or 0) + 1, 'shortest', length, cursor, ref)
  call('HSET', meta, 's', pack(seq + 1, now, pseq, turn, journal_bytes + #chunk, published, generation, began, until0, until1,
    until_later), field, pack(depth, bytes, leased_bytes + size, flow, e0, e1, e2, e3, 0))
end)
if not ok then -- what fails half-way leaves nothing behind
  local try, before = redis.pcall, {looked = conf[1], pulls = conf[4], shortest = conf[2], [cursor] = conf[7]}
  try('ZREM', KEYS[4], member)
  try('HDEL', KEYS[5], token)
--@include _unwrite
  if noted then unwrite(KEYS[2], noted, format('%d-0', seq)) end
  for _, name in ipairs({'looked', 'pulls', 'shortest', cursor}) do
    if before[name] then try('HSET', KEYS[3], name, before[name]) else try('HDEL', KEYS[3], name) end
  end
  return type(problem) == 'table' and problem or redis.error_reply(tostring(problem))
end
return {'ok', now, -1, 0, conf[5] == '1' and 1 or 0, 0, kept[2], source, ref, value}
