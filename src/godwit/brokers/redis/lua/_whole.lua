-- Around every script that includes _step.lua: a script that fails half-way is taken back, as if it had never run.
-- `undo` takes a function that takes one change back. Deletions cannot be: they wait for the end of the step (`drop`).
--@include _unwrite
local undone = {}
local function undo(how) undone[#undone + 1] = how end
local function keep()
  for n = #undone, 1, -1 do undone[n] = nil end
end
local ok, answer = pcall(function()
--@body
end)
if ok then return answer end
for n = #undone, 1, -1 do pcall(undone[n]) end
return type(answer) == 'table' and answer or redis.error_reply(tostring(answer))
