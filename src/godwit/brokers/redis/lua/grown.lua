-- Say what a partition of a queue that has grown still has.
--
-- KEYS   1 meta, 2 journal, 3 later, then the heads of each group that keeps the order of keys
-- ARGV   1 time, 2 queue
-- Gives  {now, when the queue grew, until when the last id is remembered that is due later, ordering keys with messages...}.
-- Changes nothing. Takes about 0.3 us of the server's time for each key with messages.
local fields = {'grown'}
--@include _step
local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
local answer = {now, tonumber(kept[4] or 0), tonumber(last or 0)}
for n = 4, #KEYS do
  for _, key in ipairs(redis.call('HKEYS', KEYS[n])) do answer[#answer + 1] = key end
end
return answer
