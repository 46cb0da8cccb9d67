"""The Open Inference Protocol (V2), in its REST form with JSON bodies.

| tensor | | |
|---|---|---|
| input `events` | BYTES [n] | each element an event as JSON text |
| output `p_click` | FP64 [n] | the probability that it is clicked |

`parameters` of a response hold the version's age: `freshness_ms` since the end of its tick, `version_age_s` since it
was applied; and `known_features`: how many features of an event the model knows, of the event with the fewest.
"""

from __future__ import annotations

from typing import Any

import orjson

from stream_learner.adapters.http.models import Predictions, ServedModel
from stream_learner.adapters.http.refused import Refused
from stream_learner.adapters.http.v1 import check_count, check_instances, fewest_known, parse_object, whole_seconds

INPUT, OUTPUT = "events", "p_click"
_TENSORS = {
    "inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [-1]}],
    "outputs": [{"name": OUTPUT, "datatype": "FP64", "shape": [-1]}],
}


def server(version: str) -> dict[str, Any]:
    """The metadata of this server."""
    return {"name": "stream-learner", "version": version, "extensions": []}


def metadata(name: str, served: ServedModel) -> dict[str, Any]:
    """The metadata of a model: its inputs and outputs."""
    version = served.version
    return {
        "name": name,
        "versions": [str(version)] if version >= 0 else [],
        "platform": "stream-learner",
        **_TENSORS,
        "parameters": {"model": served.model},
    }


def infer(served: ServedModel, body: bytes, most: int) -> tuple[bytes, Predictions]:
    """The response to an inference request of at most `most` events, and the predictions. Raises Refused (400)."""
    request = parse_object(body)
    request_id = request.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise Refused(400, "id must be a string")
    _check_outputs(request.get("outputs"))
    predictions = served.predict_many(_events(request.get("inputs"), most))
    check_instances(predictions, "event")
    response = {
        "model_name": predictions.model,
        "model_version": str(predictions.version),
        **({} if request_id is None else {"id": request_id}),
        "parameters": parameters(predictions),
        "outputs": [
            {"name": OUTPUT, "datatype": "FP64", "shape": [len(predictions.p_click)], "data": predictions.p_click}
        ],
    }
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY), predictions


def parameters(predictions: Predictions) -> dict[str, int]:
    """What a response says about its predictions, of what is known."""
    freshness_ms = predictions.freshness_ms
    found = {
        "freshness_ms": None if freshness_ms is None else round(freshness_ms),
        "version_age_s": whole_seconds(predictions.version_age_s),
        "known_features": fewest_known(predictions),
    }
    return {name: value for name, value in found.items() if value is not None}


def _check_outputs(outputs: Any) -> None:
    if outputs is None:
        return
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise Refused(400, "outputs must be a list of objects")
    for output in outputs:
        if output.get("name") != OUTPUT:
            raise Refused(400, f"there is no output {output.get('name')!r}; there is {OUTPUT!r}")


def _events(inputs: Any, most: int) -> list[str]:
    """The elements of the one input tensor. Raises Refused (400)."""
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refused(400, f"inputs must be a list of one tensor, {INPUT!r}")
    (tensor,) = inputs
    if tensor.get("name") != INPUT:
        raise Refused(400, f"there is no input {tensor.get('name')!r}; there is {INPUT!r}")
    if tensor.get("datatype") != "BYTES":
        raise Refused(400, f"datatype of {INPUT!r} must be BYTES")
    data = tensor.get("data")
    if not isinstance(data, list):
        raise Refused(400, f"data of {INPUT!r} must be a list of strings; there is no binary extension")
    check_count(len(data), most)
    if tensor.get("shape") != [len(data)] or isinstance(tensor["shape"][0], (bool, float)):
        raise Refused(400, f"shape of {INPUT!r} must be [{len(data)}], the number of elements in data")
    for index, event in enumerate(data):
        if not isinstance(event, str):
            raise Refused(
                400, f"event {index} is not a string: an element of a BYTES tensor is an event's JSON as text"
            )
    return data
