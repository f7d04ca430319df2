-- Take an entry of a stream back, so that numbers behind `last` can be given again. An empty stream has no last number;
-- servers newer than Redis 7.0 keep one from going back behind the last entry deleted (Redis 6.2 knows of none).
local function unwrite(key, id, last)
  redis.call('XDEL', key, id)
  if redis.call('XLEN', key) == 0 then return redis.call('DEL', key) end
  redis.pcall('XSETID', key, id, 'MAXDELETEDID', last)
  redis.call('XSETID', key, last)
end
