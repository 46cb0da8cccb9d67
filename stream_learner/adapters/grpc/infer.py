"""Requests for predictions: from the bytes of a `ModelInferRequest` to those of a `ModelInferResponse`.

| tensor | | |
|---|---|---|
| input `events` | BYTES [n] | each element an event's JSON |
| output `p_click` | FP64 [n] | the probability that it is clicked |

Elements are in `contents`, or in `raw_input_contents`, each behind its length as u32, little-endian. The answer has the
form of the request. `parameters` of an answer are those of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from stream_learner.adapters.grpc.messages import message_class
from stream_learner.adapters.http.models import Predictions, ServedModel
from stream_learner.adapters.http.refused import Refused
from stream_learner.adapters.http.v1 import check_count, check_instances
from stream_learner.adapters.http.v2 import INPUT, OUTPUT, parameters

_Request, _Response = message_class("ModelInferRequest"), message_class("ModelInferResponse")
_LENGTH_BYTES = 4


def parsed(message: Any, body: bytes) -> Any:
    """A message of this class. Raises Refused (400)."""
    try:
        return message.FromString(body)
    except DecodeError:
        raise Refused(400, f"the body is not a message of the kind {message.DESCRIPTOR.name}") from None


def parse_request(body: bytes) -> Any:
    """The request in a body. Raises Refused (400)."""
    return parsed(_Request, body)


def infer(served: ServedModel, request: Any, most: int) -> tuple[bytes, Predictions]:
    """The answer to a request of at most `most` events, and the predictions. Raises Refused (400)."""
    for output in request.outputs:
        if output.name != OUTPUT:
            raise Refused(400, f"there is no output {output.name!r}; there is {OUTPUT!r}")
    predictions = served.predict_many(_events(request, most))
    check_instances(predictions, "event")
    answer = _Response(model_name=predictions.model, model_version=str(predictions.version), id=request.id)
    for name, value in parameters(predictions).items():
        answer.parameters[name].int64_param = value
    output = answer.outputs.add(name=OUTPUT, datatype="FP64", shape=(len(predictions.p_click),))
    if request.raw_input_contents:
        answer.raw_output_contents.append(predictions.p_click.astype("<f8").tobytes())
    else:
        output.contents.fp64_contents.extend(predictions.p_click.tolist())
    encoded: bytes = answer.SerializeToString()
    return encoded, predictions


def _events(request: Any, most: int) -> list[bytes]:
    """The elements of the one input tensor. Raises Refused (400)."""
    if len(request.inputs) != 1:
        raise Refused(400, f"inputs must be one tensor, {INPUT!r}")
    (tensor,) = request.inputs
    if tensor.name != INPUT:
        raise Refused(400, f"there is no input {tensor.name!r}; there is {INPUT!r}")
    if tensor.datatype != "BYTES":
        raise Refused(400, f"datatype of {INPUT!r} must be BYTES")
    events = list(tensor.contents.bytes_contents)
    if request.raw_input_contents:
        if events or len(request.raw_input_contents) != 1:
            raise Refused(400, f"the elements of {INPUT!r} must be in its contents, or in one of raw_input_contents")
        events = list(_elements(request.raw_input_contents[0]))
    check_count(len(events), most)
    if list(tensor.shape) != [len(events)]:
        raise Refused(400, f"shape of {INPUT!r} must be [{len(events)}], the number of its elements")
    return events


def _elements(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(raw[at:start], "little")
        if at > len(raw) or start > len(raw):
            raise Refused(400, "raw_input_contents is cut short")
        yield raw[start:at]
