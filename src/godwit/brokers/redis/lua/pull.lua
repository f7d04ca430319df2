-- Look after a group, then lease up to `limit` messages to a worker.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys, then the inbox
-- ARGV   1 time, 2 queue, 3 group, 4 worker, 5 limit (at most 200), 6 lease in ms, 7 max_bytes (0: no limit), 8 a token
--        that no pull had before, 9 bytes that this call's earlier parts took (-1: first part), last the server's run id, before
--        it the application's version where it has one
-- Gives  {'gone'} when there is no such group; else {'ok', now, ms until something is due by itself or -1, 1 when more
--        is ready, 1 when the group keeps the order of keys, entries in the inbox, version of the queue's settings,
--        then per message: source, reference, stored copy}.
--        An ack id is <queue>#<partition>#<group>#<source><reference>:<token>. The source is a lane's digit (the reference is the
--        stream entry, the copy as published or with its head) or `p` (the reference is the publish_seq).
-- Works above maxmemory.
local fields = {'g:' .. ARGV[3]}
--@include _step
local GROUP, LANE, PARKED, AGAIN, DELAYED, BLOCKED, LEASES, BATCHES = 1, 2, 6, 7, 8, 9, 11, 12
local EXPIRING, WAKE, BLOCK, AGAIN_LANE = 13, 15, 15, 281474976710656
local b, name, worker, limit, length = 2, ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local max_bytes, token, part, run = tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9]), ARGV[#ARGV]
local app_version = #ARGV > 10 and ARGV[10] or nil
local held, state = gauge(b, name, kept[4]), KEYS[b + GROUP]
if not held then return {'gone'} end
held.rung = 0
local FIELDS = {'looked', 'shortest', 'run', 'fm', 'fb', 'pulls', 'ordered', 'fo', 'c0', 'c1', 'c2', 'c3'}
local conf = redis.call('HMGET', state, unpack(FIELDS))
local leased = redis.call('ZCARD', KEYS[b + LEASES])
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too

local function first(key)
  local found = redis.call('ZRANGE', KEYS[b + key], 0, 0, 'WITHSCORES')[2]
  return found and tonumber(found) or math.huge
end

local changed = {'looked', now}
if conf[3] ~= run then
  changed[3], changed[4] = 'run', run
end
local outage = leased > 0 and conf[8] == '1' and (conf[3] ~= run or now - conf[1] > tonumber(conf[2] or 0))
local lease_due, delay_due, expiry_due = leased > 0 and first(LEASES) or math.huge, first(DELAYED), first(EXPIRING)
if outage or math.min(lease_due, delay_due, expiry_due) <= now then
  local function look_after()
--@include _copies
--@include _care
    care(b, name, configuration(b), run)
    save()
  end
  look_after()
  -- Care may have changed it: read again what is needed.
  leased = redis.call('ZCARD', KEYS[b + LEASES])
  conf[1], conf[2], conf[3] = now, redis.call('HGET', state, 'shortest'), run
  lease_due, delay_due, expiry_due = first(LEASES), first(DELAYED), first(EXPIRING)
  if expiry_due <= now then limit = 0 end -- more has expired than one call may bury: nothing goes before it
end

local flow_messages, flow_bytes = tonumber(conf[4] or 0), tonumber(conf[5] or 0)
if flow_messages > 0 then limit = math.min(limit, flow_messages - leased) end
local inbox = redis.pcall('XLEN', KEYS[b + BLOCK + 1]) -- an error when a key of another type is there: not ours
local answer = {'ok', now, -1, 0, conf[7] == '1' and 1 or 0, type(inbox) == 'number' and inbox or 0, version}
local FACTS = #answer
local given, taken, bytes, full, headed = FACTS, 0, 0, false, false
local before = part < 0 and 0 or part
local bounded = max_bytes > 0 or flow_bytes > 0
local members, rows, unexpiring, expiries = {}, {}, {}, {}
local deadline, ending = format('%.0f', now + length), ':' .. token

local function fits(size)
  if max_bytes > 0 and (taken > 0 or part >= 0) and before + bytes + size > max_bytes then full = true
  elseif flow_bytes > 0 and (leased > 0 or taken > 0) and held.leased + bytes + size > flow_bytes then full = true end
  return not full
end

local function lease(source, ref, value, size)
  members[2 * taken + 1] = deadline
  members[2 * taken + 2] = source .. ref .. ending
  taken = taken + 1
  bytes = bytes + size
  answer[given + 1] = source
  answer[given + 2] = ref
  answer[given + 3] = value
  given = given + 3
end

-- A copy with its head (see _copies.lua); gives false when it does not fit.
local function lease_headed(source, ref, value)
  local _, seq, _, _, expiry, _, _, _, _, _, size = unpack_limit(value, 10, 0)
  if bounded and not fits(size) then return false end
  lease(source, ref, value, size)
  headed = true
  if expiry ~= 0 then
    unexpiring[#unexpiring + 1] = format('%016.0f', seq) .. (source == 'p' and '' or ':' .. source .. ':' .. ref)
    expiries[#unexpiring] = expiry
  end
  return true
end

local function take_again(lane)
  local from = lane * AGAIN_LANE
  local found = redis.call('ZRANGEBYSCORE', KEYS[b + AGAIN], from, from + AGAIN_LANE - 1, 'LIMIT', 0, limit - taken)
  if #found == 0 then return end
  local values = redis.call('HMGET', KEYS[b + PARKED], unpack(found))
  for n = 1, #found do
    if values[n] and not lease_headed('p', found[n], values[n]) then return end
    redis.call('ZREM', KEYS[b + AGAIN], found[n])
    if values[n] then
      undo(function() redis.call('ZADD', KEYS[b + AGAIN], from + found[n], found[n]) end)
    else
      put(state, {'recount', 1}) -- its copy is gone
    end
  end
end

local function take_lane(lane)
  local last = conf[9 + lane]
  local found = redis.call('XRANGE', KEYS[b + LANE + lane], last and '(' .. last or '-', '+', 'COUNT', limit - taken)
  local source, reached = format('%d', lane), nil
  for n = 1, #found do
    local ref, value = found[n][1], found[n][2][2]
    local dash = string.find(ref, '-', 1, true)
    local form = #ref - dash == 16 and string.byte(ref, dash + 1) or 0
    if form == 57 then
      if not lease_headed(source, ref, value) then break end
    else
      local from = form == 56 and unpack_limit(value, 1, 0) or 0
      local till, size = unpack_limit(value, 4, from)
      if bounded and not fits(size) then break end
      lease(source, ref, value, size)
      rows[taken] = '\149' .. pack(source .. ref) .. string.sub(value, from + 1, till)
    end
    reached = ref
  end
  if reached then
    changed[#changed + 1] = 'c' .. source
    changed[#changed + 1] = reached
  end
end

if limit > 0 then
  local pulls = tonumber(conf[6] or 0)
  if part >= 0 then pulls = pulls - 1 end
  local from, to, step = 3, 0, -1
  if pulls % 10 == 9 then from, to, step = 0, 3, 1 end
  -- What is not leased is ready, or waits for its time or its turn: nobody looks for more than that.
  local most = math.min(limit, held.depth - leased)
  local some = most > 0 and redis.call('ZCARD', KEYS[b + AGAIN]) > 0
  for lane = from, to, step do
    if some and taken < most and not full then take_again(lane) end
    if taken < most and not full then take_lane(lane) end
  end
end

-- Nearly always nothing was delivered before: the journal then keeps what cannot be told from the rest (see
-- brokers/redis/layout/compact_chunks.py). Else every row is written out.
local function note_headed()
--@include _copies
  local packed_deadline = pack(now + length)
  for n = 1, taken do
    local at = FACTS + 3 * (n - 1)
    local source, ref, value = answer[at + 1], answer[at + 2], answer[at + 3]
    local c = source == 'p' and parse(value) or parse_entry(tonumber(source), ref, value)
    rows[n] = '\155' .. pack(c.id, c.seq, source .. ref .. ending, c.attempt + 1, c.failures, c.crashes) .. packed_deadline
      .. pack(now - c.ready, c.type, c.lane, c.key)
  end
  write('delivered', name, worker, held.depth, rows, nil, nil, app_version)
end

if taken > 0 then
  redis.call('ZADD', KEYS[b + LEASES], unpack(members))
  undo(function()
    for n = 2, #members, 2 do redis.call('ZREM', KEYS[b + LEASES], members[n]) end
    redis.call('HDEL', KEYS[b + BATCHES], token)
  end)
  redis.call('HSET', KEYS[b + BATCHES], token, pack({worker, now, length}))
  if #unexpiring > 0 then
    redis.call('ZREM', KEYS[b + EXPIRING], unpack(unexpiring))
    undo(function()
      for n, member in ipairs(unexpiring) do redis.call('ZADD', KEYS[b + EXPIRING], expiries[n], member) end
    end)
    expiry_due = first(EXPIRING)
  end
  lease_due = math.min(lease_due, now + length)
  held.leased = held.leased + bytes
  local at = #changed
  if part < 0 then
    changed[at + 1], changed[at + 2] = 'pulls', tonumber(conf[6] or 0) + 1
    at = at + 2
  end
  if not conf[2] or leased == 0 or length < tonumber(conf[2]) then
    changed[at + 1], changed[at + 2] = 'shortest', length
  end
  if headed then
    note_headed()
  else
    local who = app_version and {worker, app_version} or worker
    store('\155' .. pack(3, epoch, seq + 1, now, queue, name, who, held.depth, token, now + length) .. array(taken)
      .. table.concat(rows), taken)
  end
end
redis.call('HSET', state, unpack(changed))
if taken > 0 then
  undo(function()
    for n = 1, #changed, 2 do
      local field, before = changed[n], nil
      for at, name in ipairs(FIELDS) do
        if name == field then before = conf[at] end
      end
      if before then redis.call('HSET', state, field, before) else redis.call('HDEL', state, field) end
    end
  end)
end
if taken < limit or limit <= 0 then
  local due = math.min(lease_due, delay_due, expiry_due)
  if due < math.huge then answer[3] = math.max(due - now, 0) end
end
if limit <= 0 or full or taken == limit then
  local waiting = held.depth - redis.call('ZCARD', KEYS[b + DELAYED]) - redis.call('ZCARD', KEYS[b + BLOCKED]) - leased
    - taken
  -- What is left behind is for others, unless flow control keeps it back: then a settlement rings.
  if waiting > 0 then
    answer[4] = 1
    local room = (flow_messages == 0 or flow_messages > leased + taken) and (flow_bytes == 0 or not full)
    if room then
      redis.call('ZADD', KEYS[b + WAKE], 0, 'w')
      held.rung = 1
    end
  end
end
save()
return answer
