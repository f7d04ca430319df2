-- Carry out settlements of any kind on leases of one queue, in the order given.
--
-- KEYS   1 meta, 2 journal, then 15 keys for each group
-- ARGV   1 time, 2 queue, 3 number of groups, 4 number of settlements (at most 200), then the groups' names, then per
--        settlement: number of its group, lease member, verb (ack, nack, postpone, give_up, hand_back), delay in ms, kind of
--        failure, error as JSON, fingerprint, run_ms, of an ack the first byte of its row and how the row ends (the last five
--        may be empty)
-- Gives  the indexes (from 1) of those that were not, or no longer, leased: they change nothing but the journal.
-- Works above maxmemory.
local fields = {}
for g = 1, tonumber(ARGV[3]) do fields[g] = 'g:' .. ARGV[4 + g] end
--@include _step
--@include _copies
local groups, n = tonumber(ARGV[3]), tonumber(ARGV[4])
local HISTORY = 20
local blocks, confs = {}, {}
for g = 1, groups do
  local b = 2 + (g - 1) * BLOCK
  local held = gauge(b, ARGV[4 + g], kept[3 + g])
  blocks[g] = b
  confs[g] = held and {ma = tonumber(redis.call('HGET', KEYS[b + GROUP], 'ma') or 0), flow = held.flow == 1}
end
if not epoch then
  local all = {}
  for i = 1, n do all[i] = i end
  return all
end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too

local function remember(c, error)
  if error == '' then return end
  if #c.errors >= HISTORY then table.remove(c.errors, 2) end
  c.errors[#c.errors + 1] = error
end

local order, rows = {}, {}
local function note(g, event, worker, row)
  local key = g .. event .. ':' .. worker
  if not rows[key] then
    rows[key] = {}
    order[#order + 1] = {key, g, event, worker}
  end
  if row then table.insert(rows[key], row) end
end

local refused, last_group, last_worker = {}, nil, nil
for i = 1, n do
  local at = 4 + groups + 9 * (i - 1)
  local g, member, verb, delay, kind, error, fingerprint, run, ending = unpack(ARGV, at + 1, at + 9)
  g = tonumber(g)
  local b, conf = blocks[g], confs[g]
  local c = conf and at_member(b, member)
  if not c then
    refused[#refused + 1] = i
  else
    if g ~= last_group or c.worker ~= last_worker then
      note(g, 'acked', c.worker)
      last_group, last_worker = g, c.worker
    end
    unlease(b, c)
    local ran = run == '' and now - c.leased or tonumber(run)
    if verb == 'ack' then
      finish(b, c)
      local row = pack(c.id, c.seq, member, c.attempt, c.failures, c.crashes, ran, c.type, c.lane)
        .. (text(c.key) and pack(c.key) or '\192')
      note(g, 'acked', c.worker, string.sub(ending, 1, 1) .. row .. string.sub(ending, 2))
      if conf.flow then ring(b) end
    elseif verb == 'hand_back' then
      c.attempt = c.attempt - 1
      give_back(b, c, now)
      note(g, 'handed_back', c.worker, end_row(c, now - c.leased, nil, nil, now))
    elseif verb == 'postpone' then
      remember(c, error)
      give_back(b, c, now + tonumber(delay))
      note(g, 'postponed', c.worker, end_row(c, ran, 'postponed', fingerprint, c.ready))
    else
      c.failures = c.failures + 1
      remember(c, error)
      if verb == 'nack' and not (conf.ma > 0 and c.failures + c.crashes >= conf.ma) then
        give_back(b, c, now + tonumber(delay))
        note(g, 'nacked', c.worker, end_row(c, ran, 'transient', fingerprint, c.ready))
      else
        if verb == 'nack' then kind = 'transient' end
        bury(b, c, kind)
        if conf.flow then ring(b) end
        note(g, 'dead_lettered', c.worker, end_row(c, ran, kind, fingerprint))
      end
    end
  end
end
local after = {}
for g = 1, groups do after[g] = confs[g] and depth(blocks[g]) end
for _, one in ipairs(order) do write(one[3], ARGV[4 + one[2]], one[4], after[one[2]], rows[one[1]]) end
for _, i in ipairs(refused) do
  local at = 4 + groups + 9 * (i - 1)
  local g, member = tonumber(ARGV[at + 1]), ARGV[at + 2]
  if confs[g] and #member > 0 and #member <= 64 then
    write('ack_refused', ARGV[4 + g], nil, after[g], {'\145' .. pack(member)})
  end
end
save()
return refused
