-- Write down that a queue or a group is paused, is draining or was resumed.
--
-- KEYS   1 meta, 2 journal
-- ARGV   1 time, 2 queue, 3 event, 4 group or '', 5 what is known of it, as MessagePack, 6 the actor or ''
-- Gives  1; 0 when there is no such queue or group: nothing has changed then.
-- Works above maxmemory.
local fields = ARGV[4] == '' and {'spec'} or {'g:' .. ARGV[4]}
--@include _step
if not kept[4] then return 0 end
redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too
local group, depth = nil, nil
if ARGV[4] ~= '' then
  local _, held = unpack_limit(kept[4], 1, 0)
  group, depth = ARGV[4], held
end
write(ARGV[3], group, nil, depth, {'\145' .. ARGV[5]}, nil, ARGV[6] ~= '' and ARGV[6] or nil)
save()
return 1
