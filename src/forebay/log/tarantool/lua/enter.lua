-- What whoever connects runs first: says how the server is set up, and installs the procedures where they are
-- missing.
--
-- Without sources nothing is installed. One at a time: making spaces takes several transactions.

local name, known, sources = ...
local fiber = require('fiber')

local state = rawget(_G, 'forebay_state')
if state == nil then
    state = {in_flight = 0, door = fiber.channel(1)}
    rawset(_G, 'forebay_state', state)
end

-- The version of the spaces; 0 where they are not made, or not all of them.
local function schema()
    local version = box.space.forebay_schema
    local row = version ~= nil and version.index[0] ~= nil and version:get(1) or nil
    return row ~= nil and row[2] or 0
end

local function install()
    if rawget(_G, name) ~= nil or schema() > known then
        return
    end
    local log = {schema = schema(), schema_known = known}
    for _, source in ipairs(sources) do
        assert(loadstring(source[2], '@' .. source[1]))(log)
    end
    rawset(_G, name, log.verbs)
end

if sources ~= nil then
    state.door:put(true)
    local ok, problem = pcall(install)
    state.door:get()
    if not ok then
        error(problem, 0)
    end
end
return rawget(_G, name) ~= nil, schema(), box.cfg.wal_mode, box.cfg.memtx_max_tuple_size
