"""Predicts events given as JSON or as dictionaries: one kernel goes from their bytes to their predictions.

A predictor keeps the memory that a call needs, and it does not grow: an event of more than `EVENT_ROOM` bytes is not
copied to it. What the fast decoder does not take is decoded by `events.reference`, outside of the kernel and of the
banks. If a new version is served meanwhile, all events are decoded first and then predicted together, so that the
predictions of a call are always of one version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import EVENT_PADDING, events_inside
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.features import Event, FeatureEncoder, event_text
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.machine.memory import address_of, buffer_address
from stream_learner.core.snapshots import event_kernels as kernels
from stream_learner.core.snapshots.event_kernels import predict_events, predict_one
from stream_learner.core.snapshots.table import ReplicaTable

EVENT_ROOM = 1 << 14
"""Bytes of the longest event that `predict` copies to a place of its own."""

_ONLY_BYTES = {bytes}
_VERSION = kernels.REQ_VERSION // 8
_P_CLICK, _KNOWN = 2, 3


class EventPredictions(NamedTuple):
    """Predictions of n events, all of one version: p_click f64[n], NaN where status u8[n], a `Reason`, is not 0.

    known i64[n]: how many features of each event are known, 0 for one that cannot be used. words: why the first of
    these cannot be used, "" if all can.
    """

    p_click: NDArray[np.float64]
    status: NDArray[np.uint8]
    version: int
    known: NDArray[np.int64]
    words: str = ""


class EventPredictor:
    """Predicts events by one table and one specification of features. One thread at a time uses it.

    A call that begins within another one, as in a handler of signals, is served by a predictor of its own.
    """

    def __init__(
        self,
        table: ReplicaTable,
        features: FeatureSpec,
        ignore_fields: tuple[str, ...],
        counts: NDArray[np.int64] | None = None,
    ) -> None:
        """ignore_fields: as for a `FeatureEncoder`. counts: where to go on counting, by default from 0.

        Raises ValueError if the features use one of the ignored fields.
        """
        self._table, self._features, self._ignored = table, features, ignore_fields
        self._encoder = FeatureEncoder(features, ignore_fields)
        self.counts = np.zeros(2, np.int64) if counts is None else counts
        """How many events were predicted so far, and how many of them had no known feature. May be read at any time."""
        self._room = features.max_features + 1
        self._rows = np.zeros(kernels.rows_bytes(self._room), np.uint8)
        self._text = np.zeros(EVENT_ROOM + len(EVENT_PADDING), np.uint8)
        self._bounds = np.zeros(4, np.int64)
        """Bounds of the one event, its prediction, and its known features."""
        self._one, self._many = self._new_request(), self._new_request()
        self._one[kernels.REQ_TEXT // 8] = address_of(self._text)
        self._one[kernels.REQ_BOUNDS // 8] = address_of(self._bounds)
        self._one[kernels.REQ_P_CLICK // 8] = address_of(self._bounds) + 8 * _P_CLICK
        self._one[kernels.REQ_KNOWN // 8] = address_of(self._bounds) + 8 * _KNOWN
        self._one[kernels.REQ_INSIDE // 8] = self._one[kernels.REQ_LAST // 8] = 1
        self._request, self._many_request = address_of(self._one), address_of(self._many)
        self._text_view, self._bounds_view = self._text.data, self._bounds.data
        self._one_view, self._many_view = self._one.data, self._many.data
        self._p_click = self._bounds.view(np.float64).data
        self._busy = False

    @property
    def nbytes(self) -> int:
        """Bytes of its rows and its text; the decoder's memory comes on top."""
        return self._rows.nbytes + self._text.nbytes

    def predict(self, event: Event) -> tuple[float, int, int]:
        """The prediction of one event, its version, and how many features of the event are known.

        Raises Refused; TypeError for what has no JSON.
        """
        text = event if type(event) is bytes else event_text(event)
        size = len(text)
        if size > EVENT_ROOM or self._busy:
            return self._predict_alone(text)
        self._busy = True
        try:
            self._text_view[:size] = text
            self._bounds_view[1] = size
            known = predict_one(self._request)
            if known >= 0:
                return self._p_click[_P_CLICK], self._one_view[_VERSION], known
        finally:
            self._busy = False
        return self._predict_alone(text)

    def predict_many(self, events: Iterable[Event]) -> EventPredictions:
        """Predictions of events of any kind, as `event_text` reads them. Raises TypeError naming one without JSON."""
        given = events if isinstance(events, list) else list(events)
        if len(given) == 1:
            return self._predict_single(event_text(given[0]))
        if set(map(type, given)) == _ONLY_BYTES:
            texts = given
        else:
            texts = [event_text(event, position) for position, event in enumerate(given)]
        bounds = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
        return self._predict_inside(b"".join([*texts, EVENT_PADDING]), bounds, len(texts))

    def predict_json(self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> EventPredictions:
        """Predictions of the n events data[bounds[i]:bounds[i+1]], bounds i64[n+1].

        Raises ValueError if the bounds do not rise from 0 or more to len(data) or less.
        """
        bounds = np.ascontiguousarray(bounds, np.int64)
        if bounds.ndim != 1 or not len(bounds):
            raise ValueError(f"bounds must be i64[n+1], not of the shape {bounds.shape}")
        inside = events_inside(data, bounds)
        if len(bounds) == 2:
            start, end = bounds.tolist()
            return self._predict_single(bytes(data[start:end]))
        return self._predict_inside(data, bounds, inside)

    def _new_request(self) -> NDArray[np.int64]:
        words = np.zeros(kernels.REQ_BYTES // 8, np.int64)
        words[kernels.REQ_CONTEXT // 8] = self._encoder.decoder.context
        words[kernels.REQ_DIRECTORY // 8] = self._table.directory
        words[kernels.REQ_CONTROL // 8] = self._table.control
        words[kernels.REQ_ROWS // 8] = address_of(self._rows)
        words[kernels.REQ_ROOM // 8] = self._room
        words[kernels.REQ_GIVEN // 8] = kernels.NOT_GIVEN
        words[kernels.REQ_COUNTS // 8] = address_of(self.counts)
        return words

    def _predict_single(self, text: bytes) -> EventPredictions:
        """`predict` as arrays."""
        try:
            p_click, version, known = self.predict(text)
        except Refused:
            return self._predict_batch_of(text)
        return EventPredictions(np.array((p_click,)), np.zeros(1, np.uint8), version, np.array((known,)))

    def _predict_batch_of(self, text: bytes) -> EventPredictions:
        return self._predict_inside(text + EVENT_PADDING, np.array((0, len(text))), 1)

    def _predict_alone(self, text: bytes) -> tuple[float, int, int]:
        """`predict` for an event that is unusual, large, or comes within another call."""
        p_click, status, version, known, words = self._predict_batch_of(text)
        if status[0]:
            raise Refused(Reason(int(status[0])), words)
        return float(p_click[0]), version, int(known[0])

    def _predict_inside(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], inside: int
    ) -> EventPredictions:
        """`predict_json`; behind the first `inside` events there is the padding that kernels may read."""
        if self._busy:
            another = EventPredictor(self._table, self._features, self._ignored, self.counts)
            return another._predict_inside(data, bounds, inside)
        self._busy = True
        try:
            found = self._predict_in_one_pass(data, bounds, inside) or self._predict_in_two_passes(data, bounds)
            if not found.status.any():
                return found
            first = int(found.status.nonzero()[0][0])
            raw, reason = bytes(data[bounds[first] : bounds[first + 1]]), Reason(int(found.status[first]))
            return found._replace(words=self._encoder.decoder.words(raw, reason))
        finally:
            self._busy = False

    def _predict_in_one_pass(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], inside: int
    ) -> EventPredictions | None:
        """None if another version came to be served before the last event was predicted."""
        n = len(bounds) - 1
        words, p_click, status = self._many_view, np.empty(n, np.int64), np.zeros(n, np.uint8)
        known = np.empty(n, np.int64)
        if inside < n:
            start = int(bounds[inside])
            tail = bytes(data[start:]) + EVENT_PADDING
            words[kernels.REQ_TAIL // 8] = buffer_address(tail) - start
        words[kernels.REQ_TEXT // 8] = buffer_address(data) if inside else 0
        words[kernels.REQ_INSIDE // 8] = inside
        words[kernels.REQ_BOUNDS // 8] = buffer_address(bounds)
        words[kernels.REQ_P_CLICK // 8] = buffer_address(p_click)
        words[kernels.REQ_KNOWN // 8] = buffer_address(known)
        words[kernels.REQ_FIRST // 8], words[kernels.REQ_LAST // 8] = 0, n
        words[kernels.REQ_GIVEN // 8], words[kernels.REQ_EXCHANGE // 8] = kernels.NOT_GIVEN, kernels.ANY_EXCHANGE
        found = EventPredictions(p_click.view(np.float64), status, 0, known)
        while (event := predict_events(self._many_request)) != n:
            if event == kernels.CHANGED:
                return None
            self._take_over(bytes(data[bounds[event] : bounds[event + 1]]), event, found)
        return EventPredictions(found.p_click, status, words[_VERSION], known)

    def _take_over(self, raw: bytes, event: int, found: EventPredictions) -> None:
        """Decode an event that the kernel stopped at, into its row."""
        words = self._many_view
        try:
            row = self._encoder.decoder.plain_row(raw)
        except Refused as refused:
            found.p_click[event], found.status[event], found.known[event] = np.nan, refused.reason, 0
            words[kernels.REQ_FIRST // 8] = event + 1
            return
        start, count = event % 2 * 3 * self._room, len(row.keys)
        rows = self._rows.view(np.uint64)
        rows[start : start + self._room][:count] = row.keys
        rows[start + self._room : start + 2 * self._room].view(np.float64)[:count] = row.values
        words[kernels.REQ_FIRST // 8], words[kernels.REQ_GIVEN // 8] = event, count

    def _predict_in_two_passes(self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> EventPredictions:
        """Decode all events, then predict them at once. Those before REQ_FIRST are counted already."""
        rows = self._encoder.encode_json(data, bounds)
        p_click, version, known = self._table.predict(rows.keys, rows.values, rows.row_start)
        p_click[rows.status != 0] = np.nan
        first = self._many_view[kernels.REQ_FIRST // 8]
        self.counts += counted(known[first:][rows.status[first:] == 0])
        return EventPredictions(p_click, rows.status, version, known)


def counted(known: NDArray[np.int64]) -> tuple[int, int]:
    """How many events these are, by their known features, and how many of them have none."""
    return len(known), int(np.count_nonzero(known == 0))
