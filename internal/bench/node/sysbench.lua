-- SPDX-License-Identifier: Apache-2.0
--
-- sysbench's own test (in TEST), with a note of every event: its thread, when
-- it was due, begun and ended. Without a RATE an event is due when its thread
-- begins it; with one, at random moments that do not wait for the one before.

dofile(os.getenv("TEST"))

local ffi = require("ffi")
ffi.cdef[[
struct lab_timespec { long sec; long nsec; };
int clock_gettime(int clock, struct lab_timespec *now);
int clock_nanosleep(int clock, int flags, const struct lab_timespec *at, struct lab_timespec *left);
]]
local realtime, absolute = 0, 1
local ts = ffi.new("struct lab_timespec")

local function now()
   ffi.C.clock_gettime(realtime, ts)
   return tonumber(ts.sec), tonumber(ts.nsec)
end

-- Moments are nanoseconds since the script began: a double holds them exactly.
local base = now()
local function since()
   local sec, nsec = now()
   return (sec - base) * 1e9 + nsec
end

local rate = tonumber(os.getenv("RATE"))
local inner, inner_init = event, thread_init
local notes, count = {}, 0
local next_due, due, begun

function thread_init(...)
   inner_init(...)
   math.randomseed(tonumber(os.getenv("SEED")) + 7919 * sysbench.tid)
   next_due = since()
end

-- A first event's due moment, or that of the one after it.
local function draw()
   if rate <= 0 then
      return since()
   end
   next_due = next_due - math.log(1 - math.random()) / rate * 1e9
   return math.floor(next_due)
end

local function sleep_until(at)
   local t = ffi.new("struct lab_timespec")
   t.sec, t.nsec = base + math.floor(at / 1e9), at % 1e9
   while ffi.C.clock_nanosleep(realtime, absolute, t, nil) ~= 0 do end
end

-- sysbench calls event again when a transaction was rolled back for a deadlock:
-- it is still the one that was due.
function event(...)
   if not due then
      due = draw()
      if due > since() then
         sleep_until(due)
      end
      begun = math.max(since(), due)
   end
   local ret = inner(...)
   count = count + 1
   notes[count] = { due, begun, since() }
   due = nil
   return ret
end

-- A moment as nanoseconds of the clock, more digits than a double has.
local function moment(at)
   return string.format("%d%09d", base + math.floor(at / 1e9), at % 1e9)
end

local inner_done = thread_done
function thread_done(...)
   local f = assert(io.open(os.getenv("NOTES") .. "." .. sysbench.tid, "w"))
   for _, n in ipairs(notes) do
      f:write(string.format("%d %s %s %s\n", sysbench.tid, moment(n[1]), moment(n[2]), moment(n[3])))
   end
   assert(f:close())
   return inner_done(...)
end
