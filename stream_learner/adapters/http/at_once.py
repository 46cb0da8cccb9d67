"""Answers to ordinary prediction requests, made while their last bytes are parsed: no task, and one write.

Ordinary is a request that came whole and small, and gets an answer with status 200. All others are
left to the application (`gate.py`), which does everything from the beginning: so nothing here says what is wrong with a
request. An ordinary one gets the bytes that the application would have sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stream_learner.adapters.http.admission import Admission
from stream_learner.adapters.http.bodies import RawHeaders, header
from stream_learner.adapters.http.executor import INLINE_BYTES
from stream_learner.adapters.http.models import Predictions, ServedModel, ServedModels
from stream_learner.adapters.http.refused import Headers
from stream_learner.adapters.http.replies import json_headers
from stream_learner.adapters.http.security import Token

AtOnce = Callable[[RawHeaders, bytes, RawHeaders], bytes | None]
"""Takes the headers and the body of a request, and headers that every answer has. Returns the answer, or None."""


class PredictAtOnce:
    """Answers requests for the predictions of one name, in one protocol."""

    def __init__(
        self,
        name: str,
        respond: Callable[[ServedModel, bytes, RawHeaders], tuple[bytes, Predictions, Headers]],
        models: ServedModels,
        admission: Admission,
        token: Token | None,
        count: Callable[[Predictions, float], None],
        *,
        limit_bytes: int,
    ) -> None:
        """limit_bytes: larger bodies are left to the application. respond: makes the body and headers of an answer from
        the body and headers of a request. count: is told the predictions of an answer, and the seconds that it took."""
        self._name = name
        self._respond = respond
        self._models = models
        self._admission = admission
        self._token = token
        self._count = count
        self._limit_bytes = min(limit_bytes, INLINE_BYTES)

    def __call__(self, headers: RawHeaders, body: bytes, given: RawHeaders) -> bytes | None:
        """The whole answer, head and body; None for the application to answer."""
        if len(body) > self._limit_bytes or not self._admission.has_room(len(body)):
            return None
        if self._token is not None and not self._token.matches(header(headers, b"authorization")):
            return None
        began_s = time.perf_counter()
        try:
            response, predictions, own = self._respond(self._models.ready(self._name), body, headers)
        except Exception:  # noqa: BLE001 -- the application comes to the same, and says it
            return None
        if self._models.draining or not predictions.model.isprintable():
            return None
        lines = [b"%s: %s\r\n" % pair for pair in (*given, *json_headers(response), *own)]
        self._count(predictions, time.perf_counter() - began_s)
        return b"".join((b"HTTP/1.1 200 OK\r\n", *lines, b"\r\n", response))
