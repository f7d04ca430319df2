-- Included after _copies.lua: what time asks for in one group, in the order of docs/broker-semantics.md.
-- At most CARE copies of each kind per call; the answer says how many changes there were and whether more is due.
local CARE = 200

-- No worker could renew a lease in the gap: one shorter than it ends one length from the outage, however long it was.
-- Up to FORGIVE leases per call, by deadline; `forgiving` says how far this outage's leases have been looked at: when it
-- was, the gap (0: of any length), the deadline to go on behind, the last one then, the shortest lease so far.
local FORGIVE = 2000

local function forgive(b, name, outage)
  local leases, rows, found = KEYS[b + LEASES], {}, {}
  local at, gap, from, last, shortest = unpack(outage)
  local open = redis.call('ZRANGEBYSCORE', leases, from, last, 'WITHSCORES', 'LIMIT', 0, FORGIVE)
  local reached = open[#open]
  if #open == 2 * FORGIVE then -- with all that end at the same time as the last
    while tonumber(open[#open]) == tonumber(reached) do open[#open], open[#open - 1] = nil, nil end
    local alike = redis.call('ZRANGEBYSCORE', leases, reached, reached, 'WITHSCORES')
    for n = 1, #alike do open[#open + 1] = alike[n] end
  end
  for n = 1, #open, 2 do
    local c = at_member(b, open[n])
    local deadline = c and at + c.length
    if c and (gap == 0 or c.length < gap) and c.deadline < deadline then
      redis.call('ZADD', leases, deadline, c.member)
      undo(function() redis.call('ZADD', leases, c.deadline, c.member) end)
      found[#found + 1] = {c.seq, '\148' .. pack(c.id, c.seq, c.member, deadline)}
    end
    if c and (shortest == 0 or c.length < shortest) then shortest = c.length end
  end
  table.sort(found, function(x, y) return x[1] < y[1] end)
  for n = 1, #found do rows[n] = found[n][2] end
  if #open >= 2 * FORGIVE then
    put(KEYS[b + GROUP], {'forgiving', pack({at, gap, '(' .. reached, last, shortest})})
  else
    if outage[6] then drop('HDEL', KEYS[b + GROUP], 'forgiving') end
    if shortest > 0 then put(KEYS[b + GROUP], {'shortest', shortest}) end
  end
  write('lease_moved', name, nil, depth(b), rows)
  return #rows, #open >= 2 * FORGIVE
end

local function backoff(conf, attempt)
  local least, most = tonumber(conf.bmin), tonumber(conf.bmax)
  if not least or least == 0 then return 0 end
  if attempt > 65 then return most end
  return math.floor(math.min(least * 2 ^ (attempt - 1), most))
end

local function take_back(b, name, conf)
  local due = redis.call('ZRANGEBYSCORE', KEYS[b + LEASES], '-inf', now, 'LIMIT', 0, CARE)
  if #due == 0 then return 0 end
  local found = {}
  for n = 1, #due do
    found[#found + 1] = at_member(b, due[n])
  end
  table.sort(found, function(x, y)
    if x.deadline ~= y.deadline then return x.deadline < y.deadline end
    return x.seq < y.seq
  end)
  local workers, returned, dead = {lease_expired = {}, dead_lettered = {}}, {}, {}
  local function note(rows, order, worker, row)
    if not rows[worker] then
      rows[worker] = {}
      order[#order + 1] = worker
    end
    table.insert(rows[worker], row)
  end
  for _, c in ipairs(found) do
    unlease(b, c)
    c.crashes = c.crashes + 1
    local poison = conf.mc > 0 and c.crashes >= conf.mc
    if poison or (conf.ma > 0 and c.failures + c.crashes >= conf.ma) then
      local kind = poison and 'poison' or 'transient'
      bury(b, c, kind)
      note(dead, workers.dead_lettered, c.worker, end_row(c, now - c.leased, kind))
    else
      give_back(b, c, now + backoff(conf, c.failures + c.crashes))
      note(returned, workers.lease_expired, c.worker, end_row(c, now - c.leased, nil, nil, c.ready))
    end
  end
  local after = depth(b)
  for _, worker in ipairs(workers.lease_expired) do write('lease_expired', name, worker, after, returned[worker]) end
  for _, worker in ipairs(workers.dead_lettered) do write('dead_lettered', name, worker, after, dead[worker]) end
  return #found
end

-- Add what has expired among the entries of a lane that are in the order of their expiry to `found`, and set the time at
-- which to look there again. Takes no more than CARE of them, and looks at ten times as many: the rest is due at once.
local function expire_lane(b, lane, found, score)
  local places = redis.call('HMGET', KEYS[b + GROUP], 'c' .. lane, 'y' .. lane)
  local from, again, taken, pages = places[1], nil, 0, 0
  if places[2] and (not from or after(places[2], from)) then from = places[2] end
  repeat
    local page = redis.call('XRANGE', KEYS[b + LANE + lane], from and '(' .. from or '-', '+', 'COUNT', CARE)
    for _, entry in ipairs(page) do
      local c = parse_entry(lane, entry[1], entry[2][2])
      if c.sorted and c.expiry > now then
        again = c.expiry
        break
      end
      from = entry[1]
      if c.sorted then
        found[#found + 1] = {c.expiry, c.seq, c}
        taken = taken + 1
      end
    end
    pages = pages + 1
    if not again and #page == CARE and (taken > 0 or pages == 10) then again = now end
  until again or #page < CARE
  displace(KEYS[b + EXPIRING], score, 'L' .. lane)
  if again then
    place(KEYS[b + EXPIRING], again, 'L' .. lane)
    if from then put(KEYS[b + GROUP], {'y' .. lane, from}) end -- nothing before it can expire
  else
    drop('HDEL', KEYS[b + GROUP], 'y' .. lane)
    gauges[b][lane] = 0
  end
end

local function expire(b, name)
  local due = redis.call('ZRANGEBYSCORE', KEYS[b + EXPIRING], '-inf', now, 'WITHSCORES', 'LIMIT', 0, CARE)
  if #due == 0 then return 0 end
  local found, rows = {}, {}
  for n = 1, #due, 2 do
    local member = due[n]
    local seq, lane, id = string.match(member, '^(%d+):?(%d?):?([%d-]*)$')
    if string.match(member, '^L[0-3]$') then
      expire_lane(b, tonumber(string.sub(member, 2)), found, due[n + 1])
    else
      -- Whatever it is, it goes: what stayed here past its time would keep everybody from pulling.
      displace(KEYS[b + EXPIRING], due[n + 1], member)
      if seq then found[#found + 1] = {tonumber(due[n + 1]), tonumber(seq), nil, lane, id} end
    end
  end
  table.sort(found, function(x, y)
    if x[1] ~= y[1] then return x[1] < y[1] end
    return x[2] < y[2]
  end)
  for _, one in ipairs(found) do
    local c, lane, id = one[3], one[4], one[5]
    -- Ending a head may have moved the next one of this list from the hash to its lane: look in both.
    if lane == '' then
      local value = redis.call('HGET', KEYS[b + PARKED], format('%.0f', one[2]))
      c = value and parse(value)
    elseif lane and lane < '4' and string.find(id, '^%d+-%d+$') then
      c = at_entry(b, tonumber(lane), id)
      local cursor = c and redis.call('HGET', KEYS[b + GROUP], 'c' .. lane)
      if cursor and not after(id, cursor) then c = nil end -- leased
    end
    local moved = to_lanes[b .. ':' .. padded(one[2])]
    if not c and moved then c = at_entry(b, moved[1], moved[2]) end
    if c and c.expiry > now then
      local member = padded(c.seq) .. (c.entry and ':' .. format('%d:', c.lane) .. c.entry or '')
      if not c.sorted then place(KEYS[b + EXPIRING], c.expiry, member) end
    elseif c and c.expiry ~= 0 and withdraw(b, c) then
      bury(b, c, 'expired')
      rows[#rows + 1] = end_row(c, nil, 'expired')
    end
  end
  write('message_expired', name, nil, depth(b), rows)
  return #rows
end

local function due_delays(b)
  local due = redis.call('ZRANGEBYSCORE', KEYS[b + DELAYED], '-inf', now, 'WITHSCORES', 'LIMIT', 0, CARE)
  for n = 1, #due, 2 do
    displace(KEYS[b + DELAYED], due[n + 1], due[n])
    local value = redis.call('HGET', KEYS[b + PARKED], format('%.0f', tonumber(due[n]) or -1))
    if value then
      local c = parse(value)
      unstore(b, c)
      c.ready = math.min(c.ready, now)
      wait(b, c)
    else
      count_again(b)
    end
  end
  return #due / 2
end

local CONF = {'mc', 'ma', 'bmin', 'bmax', 'fo', 'looked', 'shortest', 'run', 'forgiving'}

local function configuration(b)
  local values, conf = redis.call('HMGET', KEYS[b + GROUP], unpack(CONF)), {}
  for n, field in ipairs(CONF) do conf[field] = values[n] end
  if not conf.looked then return nil end
  for _, field in ipairs({'mc', 'ma', 'looked'}) do
    conf[field] = tonumber(conf[field] or 0)
  end
  return conf
end

-- `run` names the server's process: another one means that it was restarted, an outage of whatever length.
local function care(b, name, conf, run)
  local changes, before = 0, {conf.looked, conf.run}
  if redis.call('ZCARD', KEYS[b + LEASES]) > 0 then
    local gap = now - conf.looked
    if run ~= '' and conf.run ~= run then gap = math.huge end
    local outage, more
    if conf.fo == '1' and gap > tonumber(conf.shortest or 0) then
      local last = redis.call('ZRANGE', KEYS[b + LEASES], -1, -1, 'WITHSCORES')[2]
      outage = {now, gap == math.huge and 0 or gap, '-inf', last, 0, conf.forgiving}
    elseif conf.forgiving then
      outage = cmsgpack.unpack(conf.forgiving)
      outage[6] = true
    end
    if outage then changes, more = forgive(b, name, outage) end
    -- Nothing is taken back before everything is forgiven.
    if not more then changes = changes + take_back(b, name, conf) end
  elseif conf.forgiving then
    drop('HDEL', KEYS[b + GROUP], 'forgiving')
  end
  redis.call('HSET', KEYS[b + GROUP], 'looked', now, 'run', run)
  undo(function()
    redis.call('HSET', KEYS[b + GROUP], 'looked', before[1])
    if before[2] then redis.call('HSET', KEYS[b + GROUP], 'run', before[2]) end
  end)
  changes = changes + expire(b, name) + due_delays(b)
  return changes
end

local function next_due(b)
  local soonest
  for _, key in ipairs({LEASES, DELAYED, EXPIRING}) do
    local first = redis.call('ZRANGE', KEYS[b + key], 0, 0, 'WITHSCORES')[2]
    if first and (not soonest or tonumber(first) < soonest) then soonest = tonumber(first) end
  end
  return soonest and soonest - now or -1
end
