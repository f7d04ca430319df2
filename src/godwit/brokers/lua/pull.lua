-- Look after a group, then lease up to `limit` messages to a worker.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys, then the inbox
-- ARGV   1 time, 2 queue, 3 group, 4 worker, 5 limit (at most 200), 6 lease in ms, 7 max_bytes (0: no limit), 8 a token
--        that no pull had before, 9 bytes that this call's earlier parts took (-1: first part), 10 the server's run id
-- Gives  {'gone'} when there is no such group; else {'ok', now, ms until something is due by itself or -1, 1 when more
--        is ready, 1 when the group keeps the order of keys, entries in the inbox, then per message: source, reference,
--        stored copy}.
--        An ack id is <queue>#0#<group>#<source><reference>:<token>. The source is a lane's digit (the reference is the
--        stream entry, the copy as published or with its head) or `p` (the reference is the publish_seq).
-- Works above maxmemory.
--@include _step
--@include _copies
--@include _care
local b, name, worker, limit, length = 2, ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local max_bytes, token, part = tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9])
local conf = configuration(b)
if not conf then return {'gone'} end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
care(b, name, conf, ARGV[10])

-- Care may have changed it: read what flow control needs after it.
local leased = redis.call('ZCARD', KEYS[b + LEASES])
local leased_bytes = 0
if conf.fb > 0 then leased_bytes = tonumber(redis.call('HGET', KEYS[b + GROUP], 'lbytes') or 0) end
if conf.fm > 0 then limit = math.min(limit, conf.fm - leased) end
local overdue = redis.call('ZRANGEBYSCORE', KEYS[b + EXPIRING], '-inf', now, 'LIMIT', 0, 1)
if #overdue > 0 then limit = 0 end -- more has expired than one call may bury: nothing is delivered before it is gone
local waiting = redis.pcall('XLEN', KEYS[b + BLOCK + 1]) -- an error when a key of another type is there: not ours
local answer = {'ok', now, -1, 0, conf.ordered == '1' and 1 or 0, type(waiting) == 'number' and waiting or 0}
local taken, bytes, full = 0, 0, false
local before = part < 0 and 0 or part

local function fits(size)
  if max_bytes > 0 and (taken > 0 or part >= 0) and before + bytes + size > max_bytes then full = true
  elseif conf.fb > 0 and (leased > 0 or taken > 0) and leased_bytes + bytes + size > conf.fb then full = true end
  return not full
end

local members, rows, unexpiring = {}, {}, {}
local deadline = now + length
local packed_deadline = pack(deadline)

local function lease(source, ref, value, c)
  taken = taken + 1
  bytes = bytes + c.size
  local member = source .. ref .. ':' .. token
  members[#members + 1] = deadline
  members[#members + 1] = member
  answer[#answer + 1] = source
  answer[#answer + 1] = ref
  answer[#answer + 1] = value
  rows[taken] = '\155' .. pack(c.id, c.seq, member, c.attempt + 1, c.failures, c.crashes) .. packed_deadline
    .. pack(now - c.ready, c.type, c.lane, text(c.key))
end

local function take_again(lane)
  local from = lane * AGAIN_LANE
  local found = redis.call('ZRANGEBYSCORE', KEYS[b + AGAIN], from, from + AGAIN_LANE - 1, 'LIMIT', 0, limit - taken)
  if #found == 0 then return end
  local values = redis.call('HMGET', KEYS[b + PARKED], unpack(found))
  for n, ref in ipairs(found) do
    local c = parse(values[n])
    if not fits(c.size) then return end
    redis.call('ZREM', KEYS[b + AGAIN], ref)
    if c.expiry > 0 then unexpiring[#unexpiring + 1] = padded(c.seq) end
    lease('p', ref, values[n], c)
  end
end

local function take_lane(lane)
  local cursor = 'c' .. lane
  local last = redis.call('HGET', KEYS[b + GROUP], cursor)
  local found = redis.call('XRANGE', KEYS[b + LANE + lane], last and '(' .. last or '-', '+', 'COUNT', limit - taken)
  local reached
  for _, entry in ipairs(found) do
    local id, value = entry[1], entry[2][2]
    local c = parse_entry(lane, id, value)
    if not fits(c.size) then break end
    reached = id
    if c.expiry > 0 then unexpiring[#unexpiring + 1] = padded(c.seq) .. ':' .. lane .. ':' .. id end
    lease(format('%.0f', lane), id, value, c)
  end
  if reached then redis.call('HSET', KEYS[b + GROUP], cursor, reached) end
end

if limit > 0 then
  local pulls = conf.pulls
  if part >= 0 then pulls = pulls - 1 end
  local from, to, step = 3, 0, -1
  if pulls % 10 == 9 then from, to, step = 0, 3, 1 end
  local some = redis.call('ZCARD', KEYS[b + AGAIN]) > 0
  for lane = from, to, step do
    if some and taken < limit and not full then take_again(lane) end
    if taken < limit and not full then take_lane(lane) end
  end
end
if taken > 0 then
  redis.call('ZADD', KEYS[b + LEASES], unpack(members))
  redis.call('HSET', KEYS[b + BATCHES], token, pack({worker, now, length}))
  redis.call('HINCRBY', KEYS[b + GROUP], 'lbytes', bytes)
  if #unexpiring > 0 then redis.call('ZREM', KEYS[b + EXPIRING], unpack(unexpiring)) end
  if part < 0 then redis.call('HINCRBY', KEYS[b + GROUP], 'pulls', 1) end
  if not conf.shortest or leased == 0 or length < tonumber(conf.shortest) then
    redis.call('HSET', KEYS[b + GROUP], 'shortest', length)
  end
  write('delivered', name, worker, depth(b), rows)
end
save()
answer[3] = next_due(b)
if ready(b) > 0 then
  answer[4] = 1
  -- What is left behind is for others, unless flow control keeps it back: then a settlement rings.
  local room = (conf.fm == 0 or conf.fm > leased + taken) and (conf.fb == 0 or not full)
  if room then ring(b) end
end
return answer
