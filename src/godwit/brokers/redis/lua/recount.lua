-- Count a group anew, and bring what does not agree with what is stored in order.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys
-- ARGV   1 time, 2 queue, 3 group
-- Gives  {corrections, what was wrong, in words}. A copy that waited in no place is delivered again; at most 1,000 such
--        per call, the next `maintain` goes on.
-- Works above maxmemory. Takes about 3 us of the server's time for each copy.
local fields = {'g:' .. ARGV[3]}
--@include _step
--@include _copies
local b, MOST = 2, 1000
local held = gauge(b, ARGV[3], kept[4])
if not held then return {0, ''} end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local state, leases, ordered = KEYS[b + GROUP], KEYS[b + LEASES], redis.call('HGET', KEYS[b + GROUP], 'ordered') == '1'
local corrections, words, counted = 0, {}, {}

local function correct(what, number)
  corrections = corrections + number
  if not counted[what] then words[#words + 1] = what end
  counted[what] = (counted[what] or 0) + number
end

-- Leases by what they are of; of two on one copy the later one counts.
local leased, cursors, left = {}, {}, {}
local open = redis.call('ZRANGE', leases, 0, -1, 'WITHSCORES')
for n = 1, #open, 2 do
  local ref = string.match(open[n], '^([0-3p][%d-]+):')
  local former = ref and leased[ref]
  if former then left[#left + 1] = former end
  if ref then leased[ref] = {open[n], open[n + 1]} else left[#left + 1] = {open[n], open[n + 1]} end
end

local depth_now, bytes_now, leased_bytes, highest, orphans, heads, lost = 0, 0, 0, 0, {}, {}, 0
local function meet(c, ref)
  depth_now, bytes_now, highest = depth_now + 1, bytes_now + c.size, math.max(highest, c.seq)
  if type(c.key) == 'string' then heads[c.key .. ':' .. padded(c.seq)] = true end
  local lease = leased[ref]
  if lease then leased_bytes, leased[ref] = leased_bytes + c.size, nil end
  return lease
end

local function orphan(c)
  lost = lost + 1
  if #orphans < MOST then orphans[#orphans + 1] = c end
end

for ref in pairs(leased) do
  local lane, id = string.match(ref, '^([0-3])(.+)$')
  if lane and (not cursors[lane] or after(id, cursors[lane])) and at_entry(b, tonumber(lane), id) then cursors[lane] = id end
end
for lane = 0, 3 do
  local last, furthest = redis.call('HGET', state, 'c' .. lane), cursors[format('%d', lane)]
  if furthest and (not last or after(furthest, last)) then
    put(state, {'c' .. lane, furthest})
    last = furthest
    correct('bookmarks', 1)
  end
  local from, soonest, latest = '-', nil, 0
  repeat
    local page = redis.call('XRANGE', KEYS[b + LANE + lane], from, '+', 'COUNT', 500)
    for _, entry in ipairs(page) do
      from = '(' .. entry[1]
      local c = parse_entry(lane, entry[1], entry[2][2])
      local lease = meet(c, format('%d', lane) .. entry[1])
      if not lease and last and not after(entry[1], last) then
        orphan(c)
      elseif not lease and c.expiry ~= 0 then
        if c.sorted then
          soonest, latest = math.min(soonest or c.expiry, c.expiry), math.max(latest, c.expiry)
        else
          place(KEYS[b + EXPIRING], c.expiry, padded(c.seq) .. ':' .. format('%d:', lane) .. entry[1])
        end
      end
    end
  until #page < 500
  if soonest and not redis.call('ZSCORE', KEYS[b + EXPIRING], 'L' .. lane) then
    place(KEYS[b + EXPIRING], soonest, 'L' .. lane)
    held[lane] = math.max(latest, held[lane])
    correct('expiries', 1)
  end
end

local parked, where = {}, '0'
repeat
  local page = redis.call('HSCAN', KEYS[b + PARKED], where, 'COUNT', 500)
  where = page[1]
  for n = 1, #page[2], 2 do
    local ref = page[2][n]
    if not parked[ref] then -- a scan may show an entry twice
      parked[ref] = true
      local c = parse(page[2][n + 1])
      local places = {
        {KEYS[b + DELAYED], padded(c.seq)}, {KEYS[b + AGAIN], ref},
        {KEYS[b + BLOCKED], type(c.key) == 'string' and behind(c.key, c.seq) or ''},
      }
      local waits = 0
      local lease = meet(c, 'p' .. ref)
      for _, at in ipairs(places) do
        local score = redis.call('ZSCORE', at[1], at[2])
        if score and (lease or waits > 0) then
          displace(at[1], score, at[2])
          correct('copies in two places', 1)
        elseif score then
          waits = 1
        end
      end
      if not lease and waits == 0 then orphan(c) end
      if not lease and c.expiry ~= 0 then place(KEYS[b + EXPIRING], c.expiry, padded(c.seq)) end
    end
  end
until where == '0'

-- Places without a copy.
for _, lease in pairs(leased) do left[#left + 1] = lease end
for _, lease in ipairs(left) do
  displace(leases, lease[2], lease[1])
  correct('leases of nothing', 1)
end
for _, of in ipairs({DELAYED, AGAIN, BLOCKED}) do
  local members = redis.call('ZRANGE', KEYS[b + of], 0, -1, 'WITHSCORES')
  for n = 1, #members, 2 do
    local number = tonumber(of == BLOCKED and string.sub(members[n], -16) or members[n])
    if not number or not parked[format('%.0f', number)] then
      displace(KEYS[b + of], members[n + 1], members[n])
      correct('places of nothing', 1)
    end
  end
end

held.depth, held.bytes, held.leased, highest = depth_now, bytes_now, leased_bytes, math.max(highest, pseq)
local _, depth_before, bytes_before, leased_before = unpack_limit(held.saved, 3, 0)
if depth_before ~= depth_now then correct('depth', 1) end
if bytes_before ~= bytes_now or leased_before ~= leased_bytes then correct('bytes', 1) end
if highest > pseq then
  pseq = highest
  correct('publish_seq', 1)
end
if redis.call('EXISTS', KEYS[b + LETTERS]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[b + LETTERS])
  for n = 1, #info, 2 do
    local last = info[n] == 'last-generated-id' and tonumber(string.match(info[n + 1], '^%d+'))
    if last and last > tonumber(redis.call('HGET', state, 'letters') or 0) then
      put(state, {'letters', last})
      correct('numbers of dead letters', 1)
    end
  end
end

-- Heads of keys without a copy give way to the next of their key; blocked copies whose key has no head get one.
local known = redis.call('HGETALL', KEYS[b + HEADS])
for n = 1, #known, 2 do
  if not heads[known[n] .. ':' .. padded(tonumber(known[n + 1]) or 0)] then
    set_head(b, known[n], '0', known[n + 1])
    release(b, {key = known[n], seq = 0})
    correct('heads of keys', 1)
  end
end
for _, member in ipairs(redis.call('ZRANGE', KEYS[b + BLOCKED], 0, -1)) do
  local key = string.sub(member, string.find(member, ':', 1, true) + 1, -17)
  if redis.call('HEXISTS', KEYS[b + HEADS], key) == 0 then
    set_head(b, key, '0', nil)
    release(b, {key = key, seq = 0})
    correct('heads of keys', 1)
  end
end

for _, c in ipairs(orphans) do
  local head = ordered and type(c.key) == 'string' and redis.call('HGET', KEYS[b + HEADS], c.key)
  if head and head ~= format('%.0f', c.seq) and not c.entry then
    place(KEYS[b + BLOCKED], 0, behind(c.key, c.seq))
  else
    if head == false and ordered and type(c.key) == 'string' then set_head(b, c.key, format('%.0f', c.seq), nil) end
    give_back(b, c, c.ready)
  end
end
if lost > 0 then correct('copies that waited nowhere', lost) end
if redis.call('HEXISTS', state, 'recount') == 1 then drop('HDEL', state, 'recount') end
local text = {}
for n, what in ipairs(words) do text[n] = format('%s (%d)', what, counted[what]) end
text = table.concat(text, ', ')
if corrections > 0 then
  count_up(state, 'mended', corrections)
  put(state, {'mended_at', now, 'mended_what', text})
  ring(b)
end
save()
if lost > MOST then redis.call('HSET', state, 'recount', 1) end
return {corrections, text}
