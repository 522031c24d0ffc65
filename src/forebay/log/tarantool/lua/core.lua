-- What all procedures stand on: transactions, refusals, the clock, tokens and bitmaps.
--
-- A procedure never yields before it commits, so each is one step of Tarantool's single thread: nobody comes
-- in between. But a transaction is seen by others while it is on its way to the disk. The write-ahead log is
-- one line, so whoever writes after it waits for it, too; whoever only reads what may be lost again writes a
-- row of its own, so that an answer never tells of something that is not on disk.
--
-- Sequence numbers and tokens are less than 2^53, and plain numbers; message ids are made of them elsewhere.
-- Times come as numbers or as 64-bit integers: to compare them with a number that was reckoned, `tonumber`
-- them.

local log = ...
local ffi = require('ffi')
local clock = require('clock')

log.verbs = {}
log.space = {}

-- What all versions of the procedures on this server share; see `enter.lua`.
local state = rawget(_G, 'forebay_state')

-- End a procedure that has changed nothing, or whose changes are to be undone.
function log.refuse(kind, detail)
    error({refusal = kind, detail = detail}, 0)
end

-- Run a procedure up to its end, and wait behind those that are on their way to the disk.
local function run_through(run, ...)
    local answer = run(...)
    if state.in_flight > 0 and not log.wrote then
        log.space.counter:replace({'sync', 0})
    end
    return answer
end

-- Make a procedure: one transaction. It answers nil and what `run` returned, or a refusal and its detail.
function log.verb(name, run)
    log.verbs[name] = function(...)
        box.begin()
        log.wrote = false
        local ok, answer = pcall(run_through, run, ...)
        if not ok then
            box.rollback()
            if type(answer) == 'table' and answer.refusal ~= nil then
                return answer.refusal, answer.detail
            end
            error(answer, 0)
        end
        state.in_flight = state.in_flight + 1
        local done, problem = pcall(box.commit)
        state.in_flight = state.in_flight - 1
        if not done then
            error(problem, 0)
        end
        return box.NULL, answer
    end
end

-- The caller's time, or the server's, in microseconds.
function log.now(given)
    if given ~= nil then
        return given
    end
    return clock.time64() / 1000
end

function log.later(one, other)
    if tonumber(one) > tonumber(other) then
        return one
    end
    return other
end

-- A field that may be missing, to be put in a list: there, nil would end it.
function log.maybe(value)
    if value == nil then
        return box.NULL
    end
    return value
end

-- The first of `count` numbers that were never given out under this name.
function log.take_numbers(name, count)
    local row = log.space.counter:get(name)
    local last = row == nil and 0 or row.value
    log.space.counter:replace({name, last + count})
    log.wrote = true
    return last + 1
end

-- The first tuple of an index from a key on, if it has these fields of the key.
function log.first(index, key, iterator, fields)
    local found = index:select(key, {iterator = iterator or 'GE', limit = 1})[1]
    if found == nil then
        return nil
    end
    for i, field in ipairs(fields) do
        if found[field] ~= key[i] then
            return nil
        end
    end
    return found
end

-- Room that fills up: whole runs as long as they fit, and the first one cut to fit.
function log.room(messages, bytes)
    local room = {empty = true}

    function room.take(count, size)
        if room.empty then
            count = math.min(count, messages)
        elseif count > messages or size > bytes then
            return 0
        end
        room.empty = false
        messages = messages - count
        bytes = bytes - size
        return count
    end

    function room.fits(count, size)
        if not room.empty and (count > messages or size > bytes) then
            return false
        end
        room.empty = false
        messages = messages - count
        bytes = bytes - size
        return true
    end

    return room
end

-- Bitmaps: message i is bit i % 8 of byte i / 8. None at all, or an empty one, has no message.

local ones = ffi.new('uint8_t[256]')
for byte = 0, 255 do
    local rest, count = byte, 0
    while rest > 0 do
        count = count + rest % 2
        rest = math.floor(rest / 2)
    end
    ones[byte] = count
end

local function is_none(bits)
    return bits == nil or #bits == 0
end

local function combine(one, other, operate)
    local length = #one
    local left, right = ffi.cast('const uint8_t *', one), ffi.cast('const uint8_t *', other)
    local result = ffi.new('uint8_t[?]', length)
    for i = 0, length - 1 do
        result[i] = operate(left[i], right[i])
    end
    return ffi.string(result, length)
end

function log.count_bits(bits)
    if is_none(bits) then
        return 0
    end
    local bytes, count = ffi.cast('const uint8_t *', bits), 0
    for i = 0, #bits - 1 do
        count = count + ones[bytes[i]]
    end
    return count
end

function log.union(one, other)
    if is_none(one) then
        return other
    end
    return is_none(other) and one or combine(one, other, bit.bor)
end

function log.minus(one, other)
    if is_none(one) or is_none(other) then
        return one
    end
    return combine(one, other, function(left, right) return bit.band(left, bit.bnot(right)) end)
end

-- Bits of so many messages, of which those from an offset on are set.
function log.bits_from(offset, count)
    local bytes = {}
    for i = 0, math.ceil(count / 8) - 1 do
        local byte = 0
        for place = math.max(0, offset - 8 * i), math.min(7, count - 1 - 8 * i) do
            byte = byte + 2 ^ place
        end
        bytes[i + 1] = string.char(byte)
    end
    return table.concat(bytes)
end

function log.overlap(one, other)
    if is_none(one) or is_none(other) then
        return false
    end
    local left, right = ffi.cast('const uint8_t *', one), ffi.cast('const uint8_t *', other)
    for i = 0, #one - 1 do
        if bit.band(left[i], right[i]) ~= 0 then
            return true
        end
    end
    return false
end

function log.has(bits, offset)
    if is_none(bits) then
        return false
    end
    return math.floor(bits:byte(math.floor(offset / 8) + 1) / 2 ^ (offset % 8)) % 2 == 1
end
