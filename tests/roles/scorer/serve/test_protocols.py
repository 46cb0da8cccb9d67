"""Both protocols against the library: the same predictions to the bit, each with the version that made it."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from stream_learner import Scorer
from stream_learner.adapters.http.executor import INLINE_BYTES
from stream_learner.core.events.reasons import Reason
from stream_learner.traffic import TrafficModel
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.scraped import values_of
from tests.roles.scorer.serve.conftest import WEIGHTS
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience, wait_until

GOOD = {"site": "a", "x": 1}


@pytest.fixture(scope="module")
def events() -> list[bytes]:
    """Impressions as they come, each with a feature more, so that no two predictions are alike."""
    chunks = TrafficModel(7).events(1_500, 1_700_000_000_000, 1_000)
    found = [value for chunk in chunks for _, _, value in chunk.impressions]
    return [b'{"x":%.3f,' % (i / 1000) + event[1:] for i, event in enumerate(found) if event.startswith(b"{")]


def post(server: Server, path: str, body: Any, **options: Any) -> httpx.Response:
    """Send JSON, or bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}{path}", content=content, timeout=patience(), **options)


def tensor(events: list[str]) -> dict[str, Any]:
    """A V2 request."""
    return {"inputs": [{"name": "events", "shape": [len(events)], "datatype": "BYTES", "data": events}]}


def scored(events: list[bytes], scorer: Scorer) -> tuple[list[bytes], list[float]]:
    """The events that can be scored, and the library's predictions of them."""
    found = scorer.predict_many(events)
    good = [event for event, status in zip(events, found.status.tolist(), strict=True) if not status]
    return good, scorer.predict_many(good).p_click.tolist()


@pytest.mark.parametrize("count", [0, 1, 3, 40, 1_000])
def test_predictions_are_those_of_the_library(server: Server, scorer: Scorer, events: list[bytes], count: int) -> None:
    """Bit for bit, in the order of the events, small requests and large, V1 and V2."""
    good, expected = scored(events[:count], scorer)
    body = b'{"instances": [' + b", ".join(good) + b"]}"
    assert (len(body) > INLINE_BYTES) == (count == 1_000)
    found = post(server, f"/v1/models/{server.model}:predict", body)
    assert found.json()["predictions"] == expected
    found = post(server, f"/v2/models/{server.model}/infer", tensor([event.decode() for event in good]))
    (output,) = found.json()["outputs"]
    assert output["data"] == expected
    assert (output["name"], output["datatype"], output["shape"]) == ("p_click", "FP64", [len(good)])
    assert len(set(expected)) == len(good) > count * 0.9 - 1


def test_an_answer_names_model_version_and_age(server: Server, scorer: Scorer) -> None:
    """In the body and in headers, in both protocols."""
    before_ms = scorer.freshness_ms
    v1 = post(server, f"/v1/models/{server.model}:predict", {"instances": [GOOD]})
    v2 = post(server, f"/v2/models/{server.model}/infer", {**tensor([json.dumps(GOOD)]), "id": "q7"})
    assert (v1.json()["model_name"], v1.json()["model_version"]) == (server.model, "1000")
    assert (v2.json()["model_name"], v2.json()["model_version"], v2.json()["id"]) == (server.model, "1000", "q7")
    after_ms = scorer.freshness_ms
    assert before_ms is not None and after_ms is not None
    for answer, age_ms in ((v1, v1.json()["freshness_ms"]), (v2, v2.json()["parameters"]["freshness_ms"])):
        assert before_ms - 1 <= age_ms <= after_ms + 1
        assert answer.headers["stream-learner-model"] == server.model
        assert answer.headers["stream-learner-version"] == "1000"
        assert int(answer.headers["stream-learner-freshness-ms"]) == age_ms


def test_a_request_that_does_not_fit_is_told_and_counted(published: Published) -> None:
    """In the answer of both protocols, in the metrics, and once in the log with the name that is near."""
    with capture_logs() as logs, serving(config_of(published.world)) as server:

        def known(*events: dict[str, Any]) -> tuple[int | None, int | None]:
            v1 = post(server, f"/v1/models/{server.model}:predict", {"instances": list(events)})
            v2 = post(server, f"/v2/models/{server.model}/infer", tensor([json.dumps(event) for event in events]))
            return v1.json()["known_features"], v2.json()["parameters"].get("known_features")

        assert known(GOOD) == (2, 2)
        assert known(GOOD, {"site": "a"}, {"site": "new", "x": 2}) == (1, 1)
        assert known(GOOD, {"Site": "a"}, {}) == (0, 0)
        assert known() == (None, None)
        names = "scorer_events_total", "scorer_events_unknown_total"
        wait_until(lambda: [values_of(server.metrics()).get((name, "")) for name in names] == [14.0, 4.0])

        def told() -> list[list[str]]:
            known({"Site": "a"}, GOOD)
            return [line["fields"] for line in logs if line["event"] == "request_without_known_feature"]

        wait_until(lambda: ["Site: did you mean site?"] in told())
        assert sum("Site: did you mean site?" in fields for fields in told()) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"signature_name": "serving_default", "instances": [{"site": "a", "x": 1}]}',
        b' {"instances"\n:\t[ {"site": "a", "x": 1} ] , "more": {"instances": [1]}} ',
        b'{"instances": ["{\\"site\\": \\"a\\", \\"x\\": 1}"]}',
        b'{"inst\\u0061nces": [{"site": "a", "x": 1}]}',
        b'{"instances": [7], "instances": [{"site": "a", "x": 1}]}',
        b'{"instances": [{"site": "a", "x": 1, "id": 5, "time": 7}]}',
        b'{"instances": [{"x": 3, "site": "a", "x": 1}]}',
    ],
)
def test_a_request_may_be_written_in_many_ways(server: Server, scorer: Scorer, body: bytes) -> None:
    """Members beside the instances, white space, events in strings, escapes, a member twice: as JSON has it."""
    found = post(server, f"/v1/models/{server.model}:predict", body)
    assert found.json()["predictions"] == [scorer.predict(GOOD).p_click]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"instances": [{}]', "not JSON"),
        (b'{"instances": [{}], "a": nope}', "not JSON"),
        (b'{"instances": [{}] "a": 1}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "the body must be"),
        (b'{"instances": {}}', "the body must be"),
        (b'{"instances": [{}, 1]}', f"instance 1 cannot be scored: {Reason.NOT_OBJECT.text}"),
        (b'{"instances": [{}, nul]}', f"instance 1 cannot be scored: {Reason.NOT_JSON.text}"),
        (b'{"instances": [{"a": NaN}]}', f"instance 0 cannot be scored: {Reason.NOT_JSON.text}"),
        (b'{"instances": [{"a": "\xff"}]}', f"instance 0 cannot be scored: {Reason.NOT_JSON.text}"),
        (b'{"instances": ["{}", "[]"]}', f"instance 1 cannot be scored: {Reason.NOT_OBJECT.text}"),
        (b'{"instances": ["{}", {"a": ]}', "not JSON"),
        (b'{"instances": ["\\ud800"]}', "not JSON"),
        (b'{"instances": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}", "instance 0 cannot be scored"),
        (b"[" * 100_000, "not JSON"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_request_that_makes_no_sense_says_why(server: Server, body: bytes, reason: str) -> None:
    """400 and `{"error": …}` for the whole request, with the first instance that cannot be scored; never a 5xx."""
    found = post(server, f"/v1/models/{server.model}:predict", body)
    assert (found.status_code, list(found.json())) == (400, ["error"])
    assert reason in found.json()["error"]


@pytest.mark.parametrize(
    "event",
    [
        b'{"x": 1e999}',
        b'{"x": -1e400}',
        b'{"x": 1e308, "y": [1e308, 1e308]}',
        b'{"a": %s1%s}' % (b"[" * 900, b"]" * 900),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("form", [b'{"instances": [%s]}', b'{"inst\\u0061nces": [%s]}'], ids=["usual", "unusual"])
def test_what_is_at_the_edge_is_answered_as_the_library_answers(
    server: Server, scorer: Scorer, event: bytes, form: bytes
) -> None:
    """Numbers beyond float64, and deep nesting, whichever way the request is parsed."""
    expected = scorer.predict_many([event])
    found = post(server, f"/v1/models/{server.model}:predict", form % event)
    if expected.status[0]:
        assert (found.status_code, list(found.json())) == (400, ["error"])
    elif found.status_code == 200:
        assert found.json()["predictions"] == expected.p_click.tolist()
    else:
        assert form != b'{"instances": [%s]}' and "nested too deeply" in found.json()["error"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"inputs": []}, "one tensor"),
        ({"inputs": {}}, "one tensor"),
        ({"inputs": [1]}, "one tensor"),
        ({"name": "other"}, "no input 'other'"),
        ({"datatype": "FP32"}, "BYTES"),
        ({"shape": [2]}, r"must be \[1\]"),
        ({"shape": [True]}, r"must be \[1\]"),
        ({"shape": 1}, r"must be \[1\]"),
        ({"data": "x"}, "list of strings"),
        ({"data": [1]}, "event 0 is not a string"),
        ({"data": ["nope"]}, "event 0 cannot be scored: not JSON"),
        ({"outputs": [{"name": "p"}]}, "no output 'p'"),
        ({"outputs": 1}, "list of objects"),
        ({"id": 7}, "id must be a string"),
    ],
    ids=str,
)
def test_a_v2_request_that_does_not_fit_the_metadata_says_why(server: Server, change: Any, reason: str) -> None:
    """400 and `{"error": …}`."""
    request = tensor(["{}"])
    target = request if set(change) & {"inputs", "outputs", "id"} else request["inputs"][0]
    target.update(change)
    found = post(server, f"/v2/models/{server.model}/infer", request)
    assert (found.status_code, list(found.json())) == (400, ["error"])
    assert re.search(reason, found.json()["error"])


def test_a_certain_version_is_answered_only_while_it_is_served(server: Server) -> None:
    """404 for any other, in both protocols, also where its state is asked for."""
    for version, code in (("1000", 200), ("999", 404), ("x", 404)):
        v1, v2 = (f"/{protocol}/models/{server.model}/versions/{version}" for protocol in ("v1", "v2"))
        assert post(server, f"{v1}:predict", {"instances": [GOOD]}).status_code == code
        assert post(server, f"{v2}/infer", tensor(["{}"])).status_code == code
        for path in (v1, v2, f"{v2}/ready"):
            assert httpx.get(f"{server.url}{path}").status_code == code


def test_what_is_not_here_is_said_in_the_protocols_form(server: Server) -> None:
    """Unknown models, paths and methods: `{"error": …}` with 404 and 405."""
    asked = [("GET", "/v1/models/no", 404), ("POST", "/v1/models/no:predict", 404), ("GET", "/", 404)]
    asked += [("POST", "/v2/models/no/infer", 404), ("GET", "/v2/models/no/ready", 404), ("GET", "/v1/models/", 404)]
    asked += [("GET", f"/v1/models/{server.model}:predict", 405), ("DELETE", f"/v2/models/{server.model}", 405)]
    for method, path, code in asked:
        found = httpx.request(method, f"{server.url}{path}", content=b"{}" if method == "POST" else None)
        assert (found.status_code, list(found.json())) == (code, ["error"])
        assert (code == 405) == ("allow" in found.headers)


def test_what_the_server_says_of_itself_and_its_models(server: Server) -> None:
    """Lists, states in TensorFlow Serving's and in KServe's form, tensors."""

    def get(path: str) -> Any:
        return httpx.get(f"{server.url}{path}").raise_for_status().json()

    name = server.model
    assert get("/v1/models") == {"models": [name]}
    found = get(f"/v1/models/{name}")
    assert (found["name"], found["ready"]) == (name, True)
    state = {"version": "1000", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert found["model_version_status"] == [state]
    assert get("/v2")["name"] == "stream-learner" and get("/v2/health/live") == {"live": True}
    assert get("/v2/health/ready") == get("/readyz") == {"ready": True}
    assert get(f"/v2/models/{name}/ready") == {"name": name, "ready": True}
    described = get(f"/v2/models/{name}")
    assert described["inputs"] == [{"name": "events", "datatype": "BYTES", "shape": [-1]}]
    assert described["outputs"] == [{"name": "p_click", "datatype": "FP64", "shape": [-1]}]
    assert described["versions"] == ["1000"]


def test_before_the_first_version_health_is_answered_and_predictions_are_not(make_world: MakeWorld) -> None:
    """503 with the reason and when to come again; ready by itself once a version is published."""
    world = make_world()
    model = Published(world)
    with serving(config_of(world), ready=False) as server:
        wait_until(lambda: "partition 0" in httpx.get(f"{server.url}/readyz").text)
        assert httpx.get(f"{server.url}/v2/health/live").status_code == 200
        predict = post(server, f"/v1/models/{world.model}:predict", {"instances": [GOOD]})
        infer = post(server, f"/v2/models/{world.model}/infer", tensor(["{}"]))
        asked = [httpx.get(f"{server.url}{path}") for path in ("/readyz", f"/v1/models/{world.model}")]
        for found in (predict, infer, *asked, httpx.get(f"{server.url}/v2/models/{world.model}/ready")):
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert "partition 0" in found.json()["error"]
        assert asked[1].json()["model_version_status"][0]["state"] == "LOADING"
        assert httpx.get(f"{server.url}/v2/models/{world.model}").json()["versions"] == []
        model.publish(5, WEIGHTS)
        wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        assert post(server, f"/v1/models/{world.model}:predict", {"instances": [GOOD]}).status_code == 200
    model.close()


def test_several_models_are_served_each_under_its_name(make_world: MakeWorld, published: Published) -> None:
    """One that has no version yet makes the server not ready, and is the only one that does not answer."""
    world = make_world()
    other = Published(world)
    config = config_of(published.world, models=[published.world.model, world.model])
    with serving(config, ready=False) as server:
        first, second = (f"/v1/models/{name}:predict" for name in config.serve.models)
        wait_until(lambda: post(server, first, {"instances": [GOOD]}).status_code == 200)
        assert post(server, second, {"instances": [GOOD]}).status_code == 503
        assert world.model in httpx.get(f"{server.url}/readyz").json()["error"]
        other.publish(7, dict.fromkeys(WEIGHTS, 0.0))
        wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        assert post(server, second, {"instances": [GOOD]}).json()["predictions"] == [0.5]
        assert post(server, first, {"instances": [GOOD]}).json()["predictions"] != [0.5]
        assert httpx.get(f"{server.url}/v1/models").json() == {"models": config.serve.models}
    other.close()


def test_requests_are_counted(server: Server) -> None:
    """By protocol, name and code; names that nobody serves are not labels; instances and durations too."""
    before = server.metrics()
    post(server, f"/v1/models/{server.model}:predict", {"instances": [GOOD, GOOD]})
    post(server, "/v1/models/unheard-of:predict", {"instances": [GOOD]})

    def grown(series: str) -> float:
        values = [
            float(line.rpartition(" ")[2])
            for text in (before, server.metrics())
            for line in text.splitlines()
            if line.startswith(f"stream_learner_serve_{series} ")
        ]
        return values[-1] - (values[0] if len(values) == 2 else 0.0)

    name = server.model
    # A request is counted when it ends, which may be after its answer has arrived.
    wait_until(lambda: grown(f'request_seconds_count{{model="{name}",protocol="v1"}}') == 2)
    assert grown(f'requests_total{{code="200",model="{name}",name="{name}",protocol="v1"}}') == 1
    assert grown(f'requests_total{{code="404",model="{name}",name="",protocol="v1"}}') == 1
    assert grown(f'instances_total{{model="{name}",name="{name}"}}') == 2
    assert "unheard-of" not in server.metrics()
