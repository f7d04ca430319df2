-- Included after _step.lua: copies and the places they wait in.
-- A group's keys come in blocks of 15, in the order below; `b` is the number of the key before a block.
-- A copy is stored as its head (seq, lane, ready_at, expiry, attempt, failures, crashes, returned, errors) followed by
-- its blob (size, id, type, ordering key, ...), all MessagePack. So are the entries of lanes whose ids end in -9 and 15
-- digits. Those that were published to their lane and never delivered have no head. <publish_seq>-<ready_at>: the blob of
-- a message that does not expire. <publish_seq>-8<ready_at, 15 digits>: expiry and blob of one that does; among these
-- no later one in a lane expires earlier, so that instead of each only the lane is in `expiring`, as L<lane>, by a time
-- not later than the expiry of the first that waits. Every other waiting copy that expires is there itself.
local GROUP, LANE, PARKED, AGAIN, DELAYED, BLOCKED, HEADS, LEASES = 1, 2, 6, 7, 8, 9, 10, 11
local BATCHES, EXPIRING, LETTERS, WAKE, BLOCK = 12, 13, 14, 15, 15
local HEADED, SORTED = 57, 56 -- the bytes 9 and 8
local AGAIN_LANE = 281474976710656 -- 2^48: `again` holds all lanes, by lane and then by publish_seq

local function padded(n) return format('%016.0f', n) end

local function head(c)
  return pack(c.seq, c.lane, c.ready, c.expiry, c.attempt, c.failures, c.crashes, c.returned, c.errors)
end

local function parse(value)
  local c, at = {}, 0
  at, c.seq, c.lane, c.ready, c.expiry, c.attempt, c.failures, c.crashes, c.returned, c.errors
    = unpack_limit(value, 9, 0)
  c.blob = string.sub(value, at + 1)
  at, c.size, c.id, c.type, c.key = unpack_limit(value, 4, at)
  return c
end

local function parse_entry(lane, id, value)
  local dash = string.find(id, '-', 1, true)
  local tail = string.sub(id, dash + 1)
  local form, c = #tail == 16 and string.byte(tail), nil
  if form == HEADED then
    c = parse(value)
  else
    local at, expiry, blob, ready_at = 0, 0, value, tail
    if form == SORTED then
      at, expiry = unpack_limit(value, 1, 0)
      blob, ready_at = string.sub(value, at + 1), string.sub(tail, 2)
    end
    local _, size, mid, type, key = unpack_limit(value, 4, at)
    c = {
      seq = tonumber(string.sub(id, 1, dash - 1)), lane = lane, ready = tonumber(ready_at), expiry = expiry, attempt = 0,
      failures = 0, crashes = 0, returned = 0, errors = {}, blob = blob, size = size, id = mid, type = type, key = key,
      sorted = form == SORTED,
    }
  end
  c.entry = id
  return c
end

-- Say whether the entry `id` of a stream comes after `other`.
local function after(id, other)
  local number, tail = string.match(id, '(%d+)-(%d+)')
  local its_number, its_tail = string.match(other, '(%d+)-(%d+)')
  number, its_number = tonumber(number), tonumber(its_number)
  return number > its_number or (number == its_number and tonumber(tail) > tonumber(its_tail))
end

local function at_entry(b, lane, id)
  local found = redis.call('XRANGE', KEYS[b + LANE + lane], id, id)[1]
  return found and parse_entry(lane, id, found[2][2])
end

-- Lease members: <lane or p><entry id or publish_seq>:<token>.
local function at_member(b, member)
  local colon = string.find(member, ':', 1, true)
  local source, ref = string.sub(member, 1, 1), string.sub(member, 2, colon - 1)
  local c
  if source == 'p' then
    local value = redis.call('HGET', KEYS[b + PARKED], ref)
    c = value and parse(value)
  else
    c = at_entry(b, tonumber(source), ref)
  end
  if c then
    c.member = member
    c.attempt = c.attempt + 1 -- what is stored counts the deliveries before this one
    local lease = redis.call('HMGET', KEYS[b + BATCHES], string.sub(member, colon + 1), member)
    c.worker, c.leased, c.length = unpack(cmsgpack.unpack(lease[1]))
    if lease[2] then c.length = tonumber(lease[2]) end
  end
  return c
end

local function depth(b) return gauges[b].depth end

local function ready(b)
  return depth(b) - redis.call('ZCARD', KEYS[b + DELAYED]) - redis.call('ZCARD', KEYS[b + BLOCKED])
    - redis.call('ZCARD', KEYS[b + LEASES])
end

local function ring(b)
  redis.call('ZADD', KEYS[b + WAKE], 0, 'w')
  if gauges[b] then gauges[b].rung = 1 end
end

local function behind(key, seq) return #key .. ':' .. key .. padded(seq) end

local function park(b, c)
  redis.call('HSET', KEYS[b + PARKED], format('%.0f', c.seq), head(c) .. c.blob)
  if c.expiry > 0 then redis.call('ZADD', KEYS[b + EXPIRING], c.expiry, padded(c.seq)) end
end

-- Take a copy out of the stream or hash that keeps it, not out of the sets that say why it waits.
local function unstore(b, c)
  if c.entry then
    redis.call('XDEL', KEYS[b + LANE + c.lane], c.entry)
    if c.expiry > 0 and not c.sorted then
      redis.call('ZREM', KEYS[b + EXPIRING], padded(c.seq) .. ':' .. format('%.0f', c.lane) .. ':' .. c.entry)
    end
  else
    redis.call('HDEL', KEYS[b + PARKED], format('%.0f', c.seq))
    if c.expiry > 0 then redis.call('ZREM', KEYS[b + EXPIRING], padded(c.seq)) end
  end
end

local to_lanes = {} -- what this step moved to lanes, by publish_seq and group

local function to_lane(b, c)
  turn = turn + 1
  local id = format('%.0f-9%015.0f', c.after or pseq, turn)
  to_lanes[b .. ':' .. padded(c.seq)] = {c.lane, id}
  redis.call('XADD', KEYS[b + LANE + c.lane], id, 'e', head(c) .. c.blob)
  if c.expiry > 0 then
    redis.call('ZADD', KEYS[b + EXPIRING], c.expiry, padded(c.seq) .. ':' .. format('%.0f', c.lane) .. ':' .. id)
  end
end

-- Put a copy that is stored nowhere where it becomes deliverable.
local function wait(b, c)
  if c.ready > now then
    park(b, c)
    redis.call('ZADD', KEYS[b + DELAYED], c.ready, padded(c.seq))
  elseif c.returned == 1 then
    park(b, c)
    redis.call('ZADD', KEYS[b + AGAIN], c.lane * AGAIN_LANE + c.seq, format('%.0f', c.seq))
  else
    to_lane(b, c)
  end
  ring(b)
end

local function give_back(b, c, ready_at)
  unstore(b, c)
  c.entry, c.ready, c.returned = nil, ready_at, 1
  wait(b, c)
end

local function release(b, c)
  local heads = KEYS[b + HEADS]
  if type(c.key) ~= 'string' or redis.call('HGET', heads, c.key) ~= format('%.0f', c.seq) then return end
  local prefix = '[' .. #c.key .. ':' .. c.key
  local member = redis.call('ZRANGEBYLEX', KEYS[b + BLOCKED], prefix .. '0', prefix .. ':', 'LIMIT', 0, 1)[1]
  if not member then
    redis.call('HDEL', heads, c.key)
    return
  end
  local number = format('%.0f', tonumber(string.sub(member, -16)))
  local heir = parse(redis.call('HGET', KEYS[b + PARKED], number))
  redis.call('ZREM', KEYS[b + BLOCKED], member)
  redis.call('HSET', heads, c.key, number)
  unstore(b, heir)
  wait(b, heir)
end

-- Count a copy out that was taken from the set it waited in, and let the next of its key come.
local function finish(b, c)
  unstore(b, c)
  local held = gauges[b]
  held.depth, held.bytes = held.depth - 1, held.bytes - c.size
  release(b, c)
end

local function unlease(b, c)
  redis.call('ZREM', KEYS[b + LEASES], c.member)
  redis.call('HDEL', KEYS[b + BATCHES], c.member)
  gauges[b].leased = gauges[b].leased - c.size
end

local function letter(b, c, kind)
  local number = redis.call('HINCRBY', KEYS[b + GROUP], 'letters', 1)
  redis.call('XADD', KEYS[b + LETTERS], format('%.0f-0', number), 'k', kind, 't', now, 'e', head(c) .. c.blob)
end

local function bury(b, c, kind)
  finish(b, c)
  letter(b, c, kind)
end

local function admit(b, c, ordered)
  local held = gauges[b]
  held.depth, held.bytes = held.depth + 1, held.bytes + c.size
  if ordered and type(c.key) == 'string' then
    if redis.call('HEXISTS', KEYS[b + HEADS], c.key) == 1 then
      park(b, c)
      redis.call('ZADD', KEYS[b + BLOCKED], 0, behind(c.key, c.seq))
      return
    end
    redis.call('HSET', KEYS[b + HEADS], c.key, format('%.0f', c.seq))
  end
  wait(b, c)
end

-- Take a waiting copy out of the sets that say why it waits.
local function withdraw(b, c)
  if c.entry then return end
  if redis.call('ZREM', KEYS[b + DELAYED], padded(c.seq)) == 1 then return end
  if redis.call('ZREM', KEYS[b + AGAIN], format('%.0f', c.seq)) == 1 then return end
  if type(c.key) == 'string' then redis.call('ZREM', KEYS[b + BLOCKED], behind(c.key, c.seq)) end
end

local function text(value)
  if type(value) == 'string' and value ~= '' then return value end
  return nil
end

-- The journal row of a lease's end (without ready_at), of a dead letter, of an expiry.
local function end_row(c, run, kind, fingerprint, ready_at)
  local member = c.member
  local row = pack(c.id, c.seq, member or nil, c.attempt, c.failures, c.crashes, run or nil, c.type, c.lane,
    text(c.key), text(kind), text(fingerprint))
  if ready_at then return '\157' .. row .. pack(ready_at) end
  return '\156' .. row
end
