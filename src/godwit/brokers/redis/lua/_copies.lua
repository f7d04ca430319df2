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
  c.blob, c.stored = string.sub(value, at + 1), value
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

-- Copies and counters that do not agree are left to `maintain`, which counts the group again (see maintain.lua).
local function count_again(b) put(KEYS[b + GROUP], {'recount', 1}) end

-- Add to, or take from, a sorted set.
local function place(key, score, member)
  if redis.call('ZADD', key, score, member) == 1 then undo(function() redis.call('ZREM', key, member) end) end
end

local function displace(key, score, member)
  if redis.call('ZREM', key, member) == 0 then return false end
  undo(function() redis.call('ZADD', key, score, member) end)
  return true
end

-- The head of an ordering key: the publish_seq of the copy that the others wait for, or nil.
local function set_head(b, key, seq, former)
  if seq then redis.call('HSET', KEYS[b + HEADS], key, seq) else redis.call('HDEL', KEYS[b + HEADS], key) end
  undo(function()
    if former then redis.call('HSET', KEYS[b + HEADS], key, former) else redis.call('HDEL', KEYS[b + HEADS], key) end
  end)
end

-- Lease members: <lane or p><entry id or publish_seq>:<token>. Gives nil for what is not leased; a lease whose copy is
-- gone is forgotten.
local function at_member(b, member)
  local score = redis.call('ZSCORE', KEYS[b + LEASES], member)
  if not score then return nil end
  local source, ref, token = string.match(member, '^([0-3p])([%d-]+):(.*)$')
  local c
  if source == 'p' then
    local value = redis.call('HGET', KEYS[b + PARKED], ref)
    c = value and parse(value)
  elseif source then
    c = at_entry(b, tonumber(source), ref)
  end
  if c then
    c.member, c.deadline = member, tonumber(score)
    c.attempt = c.attempt + 1 -- what is stored counts the deliveries before this one
    local lease = redis.call('HMGET', KEYS[b + BATCHES], token, member)
    if lease[1] then
      c.worker, c.leased, c.length = unpack(cmsgpack.unpack(lease[1]))
    else
      c.worker, c.leased, c.length = '', now, 0
    end
    if lease[2] then c.length = tonumber(lease[2]) end
  else
    displace(KEYS[b + LEASES], score, member)
    count_again(b)
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
  local ref = format('%.0f', c.seq)
  redis.call('HSET', KEYS[b + PARKED], ref, head(c) .. c.blob)
  undo(function() redis.call('HDEL', KEYS[b + PARKED], ref) end)
  if c.expiry ~= 0 then place(KEYS[b + EXPIRING], c.expiry, padded(c.seq)) end
end

-- Take a copy out of the stream or hash that keeps it, not out of the sets that say why it waits.
local function unstore(b, c)
  if c.entry then
    drop('XDEL', KEYS[b + LANE + c.lane], c.entry)
    if c.expiry ~= 0 and not c.sorted then
      displace(KEYS[b + EXPIRING], c.expiry, padded(c.seq) .. ':' .. format('%.0f', c.lane) .. ':' .. c.entry)
    end
  else
    local ref = format('%.0f', c.seq)
    redis.call('HDEL', KEYS[b + PARKED], ref)
    undo(function() redis.call('HSET', KEYS[b + PARKED], ref, c.stored) end)
    if c.expiry ~= 0 then displace(KEYS[b + EXPIRING], c.expiry, padded(c.seq)) end
  end
end

local to_lanes = {} -- what this step moved to lanes, by publish_seq and group

-- Add an entry to a lane. Taken back, the next number may be given again: the lane then goes on behind all before.
local function add_entry(b, lane, id, value)
  redis.call('XADD', KEYS[b + LANE + lane], id, 'e', value)
  undo(function()
    unwrite(KEYS[b + LANE + lane], id, format('%.0f-9%015.0f', saved_pseq, saved_turn))
  end)
end

local function to_lane(b, c)
  turn = turn + 1
  local id = format('%.0f-9%015.0f', c.after or pseq, turn)
  to_lanes[b .. ':' .. padded(c.seq)] = {c.lane, id}
  add_entry(b, c.lane, id, head(c) .. c.blob)
  if c.expiry ~= 0 then
    place(KEYS[b + EXPIRING], c.expiry, padded(c.seq) .. ':' .. format('%.0f', c.lane) .. ':' .. id)
  end
end

-- Put a copy that is stored nowhere where it becomes deliverable.
local function wait(b, c)
  if c.ready > now then
    park(b, c)
    place(KEYS[b + DELAYED], c.ready, padded(c.seq))
  elseif c.returned == 1 then
    park(b, c)
    place(KEYS[b + AGAIN], c.lane * AGAIN_LANE + c.seq, format('%.0f', c.seq))
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
  if type(c.key) ~= 'string' then return end
  local former = redis.call('HGET', KEYS[b + HEADS], c.key)
  if former ~= format('%.0f', c.seq) then return end
  local prefix = '[' .. #c.key .. ':' .. c.key
  while true do
    local member = redis.call('ZRANGEBYLEX', KEYS[b + BLOCKED], prefix .. '0', prefix .. ':', 'LIMIT', 0, 1)[1]
    if not member then return set_head(b, c.key, nil, former) end
    displace(KEYS[b + BLOCKED], 0, member)
    local number = format('%.0f', tonumber(string.sub(member, -16)))
    local value = redis.call('HGET', KEYS[b + PARKED], number)
    if value then
      local heir = parse(value)
      set_head(b, c.key, number, former)
      unstore(b, heir)
      return wait(b, heir)
    end
    count_again(b)
  end
end

-- Count a copy out that was taken from the set it waited in, and let the next of its key come.
local function finish(b, c)
  unstore(b, c)
  local held = gauges[b]
  held.depth, held.bytes = held.depth - 1, held.bytes - c.size
  release(b, c)
end

local function unlease(b, c)
  displace(KEYS[b + LEASES], c.deadline, c.member)
  drop('HDEL', KEYS[b + BATCHES], c.member)
  gauges[b].leased = gauges[b].leased - c.size
end

local function letter(b, c, kind)
  local id = format('%.0f-0', redis.call('HINCRBY', KEYS[b + GROUP], 'letters', 1)) -- numbers may be left out
  redis.call('XADD', KEYS[b + LETTERS], id, 'k', kind, 't', now, 'e', head(c) .. c.blob)
  undo(function() redis.call('XDEL', KEYS[b + LETTERS], id) end)
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
      place(KEYS[b + BLOCKED], 0, behind(c.key, c.seq))
      return
    end
    set_head(b, c.key, format('%.0f', c.seq))
  end
  wait(b, c)
end

-- Take a waiting copy out of the sets that say why it waits; say whether it was in one.
local function withdraw(b, c)
  if c.entry then return true end
  return displace(KEYS[b + DELAYED], c.ready, padded(c.seq))
    or displace(KEYS[b + AGAIN], c.lane * AGAIN_LANE + c.seq, format('%.0f', c.seq))
    or (type(c.key) == 'string' and displace(KEYS[b + BLOCKED], 0, behind(c.key, c.seq)))
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
