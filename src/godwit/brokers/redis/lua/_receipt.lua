-- Included after _step.lua by scripts that are called seldom and do not do the same when they are run twice. The last
-- argument is the call's name: sent again because its reply was lost, it gets the answer of its first run again.
local named, former = ARGV[#ARGV], redis.call('HGET', meta, 'receipt')
if former and named ~= '' then
  local name, answer = unpack(cmsgpack.unpack(former))
  if name == named then return answer end
end
local function receipt(answer)
  put(meta, {'receipt', pack({named, answer})})
  return answer
end
