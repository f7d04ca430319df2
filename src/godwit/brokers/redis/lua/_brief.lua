-- Included by the scripts that publish and pull the short way, after they have read meta: what _step.lua does, without
-- functions, which are made anew at every call of a script.
-- ARGV[1] the time in ms (empty in production: the server's own); `kept` begins with epoch, version and counters.
-- `now` never goes back within a queue, and goes on while the clock is behind it.
local _, seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later
  = unpack_limit(kept[3], 11, 0)
local clock = tonumber(ARGV[1])
if not clock then
  local time = call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
end
if clock >= now then
  now = clock
else -- the clock went back: see core/journal/queue_time.py
  local lag, went = call('HGET', meta, 'lag'), -1
  if lag then
    local _, at, since = unpack_limit(lag, 2, 0)
    went = at + math.floor((clock - since) / 2)
  end
  if went >= now then now = went else redis.pcall('HSET', meta, 'lag', pack(now, clock)) end
end
