-- Included by the scripts that publish and pull the short way, after they have read meta: what _step.lua does, without
-- functions, which are made anew at every call of a script.
-- ARGV[1] the time in ms (empty in production: the server's own); `kept` begins with epoch, version and counters.
-- `now` never goes back within a queue.
local _, seq, now, pseq, turn, journal_bytes, published, generation, began, until0, until1, until_later
  = unpack_limit(kept[3], 11, 0)
if ARGV[1] == '' then
  local time = call('TIME')
  local clock = time[1] * 1000 + math.floor(time[2] / 1000)
  if clock > now then now = clock end
elseif tonumber(ARGV[1]) > now then
  now = tonumber(ARGV[1])
end
