-- Delete the waiting copies of a message in one group, looking through at most 1,000 copies per call.
--
-- KEYS   1 meta, 2 journal, then the group's 15 keys
-- ARGV   1 time, 2 queue, 3 group, 4 message id, 5 where to go on: '' to begin, or what the call before gave, 6 the
--        actor or '', 7 the call's name (see _receipt.lua)
-- Gives  {copies deleted, where to go on}; the second is '' when all was looked through.
-- Works above maxmemory.
local fields = {'g:' .. ARGV[3]}
--@include _step
--@include _copies
--@include _receipt
local b, name, wanted, from = 2, ARGV[3], ARGV[4], ARGV[5]
local LOOK = 1000
if not gauge(b, name, kept[4]) then return {0, ''} end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local found, seen, looked, place, where = {}, {}, 0, 'p', '0'
if from ~= '' then place, where = string.sub(from, 1, 1), string.sub(from, 2) end

-- The hash first: what becomes due meanwhile goes from there to a lane, never the other way without a delivery.
while place == 'p' and looked < LOOK do
  local page = redis.call('HSCAN', KEYS[b + PARKED], where, 'COUNT', 200)
  where = page[1]
  for n = 1, #page[2], 2 do
    looked = looked + 1
    local c = parse(page[2][n + 1])
    if c.id == wanted and not seen[c.seq] then -- a scan may show an entry twice
      seen[c.seq] = true
      local waits = redis.call('ZSCORE', KEYS[b + DELAYED], padded(c.seq))
        or redis.call('ZSCORE', KEYS[b + AGAIN], format('%.0f', c.seq))
        or (text(c.key) and redis.call('ZSCORE', KEYS[b + BLOCKED], behind(c.key, c.seq)))
      if waits then found[#found + 1] = c end
    end
  end
  if where == '0' then place, where = '0', '' end
end
while place ~= 'p' and place ~= '' and looked < LOOK do
  local lane = tonumber(place)
  local last = redis.call('HGET', KEYS[b + GROUP], 'c' .. lane)
  -- What was beyond the bookmark may be leased by now: the group's cursor counts.
  if last and (where == '' or after(last, where)) then where = last end
  local start = where ~= '' and '(' .. where or '-'
  local page = redis.call('XRANGE', KEYS[b + LANE + lane], start, '+', 'COUNT', 200)
  for _, entry in ipairs(page) do
    looked = looked + 1
    where = entry[1]
    local c = parse_entry(lane, entry[1], entry[2][2])
    if c.id == wanted then found[#found + 1] = c end
  end
  if #page < 200 then
    place, where = lane < 3 and format('%.0f', lane + 1) or '', ''
  end
end

table.sort(found, function(x, y) return x.seq > y.seq end)
local rows = {}
for n, c in ipairs(found) do
  -- Ending a head may have moved another of these from the hash to its lane.
  local moved = to_lanes[b .. ':' .. padded(c.seq)]
  if moved then c = at_entry(b, moved[1], moved[2]) end
  withdraw(b, c)
  finish(b, c)
  rows[n] = '\146' .. pack(wanted, c.seq)
end
write('cancelled', name, nil, depth(b), rows, nil, text(ARGV[6]))
local answer = {#rows, place == '' and '' or place .. where}
if #rows > 0 then receipt(answer) end
save()
return answer
