-- Posts the bodies of a folder one after another, and writes what wrk measured as one line of JSON.
-- Arguments: the folder, how many bodies 0.json, 1.json, ... it has.
-- With PAUSE_MS each connection pauses before a request, at random, for so long in the mean.
local bodies = {}
local next_body = 0
local pause_ms = tonumber(os.getenv("PAUSE_MS"))

function init(args)
  for i = 0, tonumber(args[2]) - 1 do
    local file = io.open(args[1] .. "/" .. i .. ".json", "rb")
    bodies[i] = file:read("*a")
    file:close()
  end
end

function request()
  next_body = (next_body + 1) % (#bodies + 1)
  return wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, bodies[next_body])
end

if pause_ms then
  function delay()
    return math.random(0, 2 * pause_ms)
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"failed":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
