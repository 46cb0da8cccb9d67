"""The V1 inference protocol, as TensorFlow Serving and KServe speak it.

This file must never parse an event: the decoder of events does, so that a prediction over HTTP equals the library's to
the bit.

| request | response |
|---|---|
| POST /v1/models/<name>[/versions/<version>]:predict {"instances": [event, …]} | {"predictions": [p, …], …} |
| GET /v1/models/<name>[/versions/<version>] | {"name": …, "ready": …, "model_version_status": […], …} |
| GET /v1/models | {"models": [name, …]} |

An instance is an event as a JSON object, or a string that holds such JSON. `model_name`, `model_version`,
`freshness_ms`, `version_age_s` and `known_features` are additions to what the protocol asks for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from stream_learner.adapters.http.models import Predictions, ServedModel
from stream_learner.adapters.http.refused import Refused
from stream_learner.core.events.fast.requests import TooManyElements, find_elements
from stream_learner.wording import count_of

KEY = b"instances"


def predict(served: ServedModel, body: bytes, most: int) -> tuple[bytes, Predictions]:
    """The response to a predict request of at most `most` instances, and its predictions. Raises Refused (400)."""
    predictions = _predict_instances(served, body, most)
    check_instances(predictions, "instance")
    freshness_ms = predictions.freshness_ms
    response = {
        "predictions": predictions.p_click,
        "model_name": predictions.model,
        "model_version": str(predictions.version),
        "freshness_ms": None if freshness_ms is None else round(freshness_ms),
        "version_age_s": whole_seconds(predictions.version_age_s),
        "known_features": fewest_known(predictions),
    }
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY), predictions


def status(name: str, served: ServedModel) -> tuple[int, dict[str, Any]]:
    """HTTP status and body that tell whether a model is ready."""
    reason, version = served.why_refused, served.version
    state = {
        "version": str(max(version, 0)),
        "state": "LOADING" if reason else "AVAILABLE",
        "status": {"error_code": "UNAVAILABLE" if reason else "OK", "error_message": reason},
    }
    freshness_ms = served.freshness_ms
    found = {
        "name": name,
        "ready": not reason,
        "model_name": served.model,
        "model_version_status": [state],
        "freshness_ms": None if freshness_ms is None else round(freshness_ms),
        "version_age_s": whole_seconds(served.version_age_s),
    }
    return (503, {**found, "error": reason}) if reason else (200, found)


def whole_seconds(seconds: float | None) -> int | None:
    """Seconds as responses show them; None stays None."""
    return None if seconds is None else round(seconds)


def fewest_known(predictions: Predictions) -> int | None:
    """The known features of the event that has the fewest, None if there is no event."""
    return min(predictions.known_features.tolist(), default=None)


def check_instances(predictions: Predictions, noun: str) -> None:
    """Raise Refused (400) if an event cannot be scored; the reason names the first one."""
    if np.count_nonzero(predictions.status):
        index = int(predictions.status.nonzero()[0][0])
        raise Refused(400, f"{noun} {index} cannot be scored: {predictions.why_bad}")


def check_version(name: str, predictions: Predictions, wanted: str | None) -> None:
    """Raise Refused (404) if the path named a version, and the predictions are of another."""
    if wanted is not None and wanted != str(predictions.version):
        raise Refused(404, f"version {wanted} of model {name!r} is not served; version {predictions.version} is")


def check_served_version(name: str, served: ServedModel, wanted: str | None) -> None:
    """Raise Refused (404) if the path named a version, and another is served."""
    if wanted is not None and wanted != str(served.version):
        raise Refused(404, f"version {wanted} of model {name!r} is not served; version {served.version} is")


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object. Raises Refused (400)."""
    try:
        found = orjson.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(400, "the body is JSON, but not an object")
    return found


def check_count(count: int, most: int) -> None:
    """Raise Refused (400) for more instances than `most`."""
    if count > most:
        raise Refused(400, f"{count_of(count, 'instance')} are more than serve.max_instances, {most}")


def _predict_instances(served: ServedModel, body: bytes, most: int) -> Predictions:
    try:
        found = find_elements(body, KEY, most)
    except TooManyElements as error:
        check_count(error.count, most)
        raise
    if found is None:
        return served.predict_many(_parsed(body, most))
    parse_object(found.rest)
    if not found.any_text:
        return served.predict_json(found.data, found.bounds)
    whole, bounds = found.data.tobytes(), found.bounds.tolist()
    return served.predict_many([_text(whole[a:b]) for a, b in pairwise(bounds)])


def _text(element: bytes) -> bytes:
    """The JSON of an event that is given as an object, or as a string that holds it."""
    if element[:1] != b'"':
        return element
    try:
        text: str = orjson.loads(element)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    return text.encode()


def _parsed(body: bytes, most: int) -> list[bytes]:
    """The JSON of each instance, from a body of a form that `find_elements` does not read."""
    request = parse_object(body)
    instances = request.get("instances")
    if not isinstance(instances, list):
        raise Refused(400, 'the body must be {"instances": [event, …]}')
    check_count(len(instances), most)
    return [_dumped(index, instance) for index, instance in enumerate(instances)]


def _dumped(index: int, instance: Any) -> bytes:
    try:
        return instance.encode() if isinstance(instance, str) else orjson.dumps(instance)
    except TypeError:
        raise Refused(400, f"instance {index} cannot be scored: it is nested too deeply") from None
