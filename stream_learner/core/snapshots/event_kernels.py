"""The loop from the bytes of events to predictions: decode one, ask for the memory of its weights, sum the one before.

It takes one address, that of a request: a block of words that `predictor` fills and that names everything else. There
are two rows of features, one for the event that is decoded and one for that before it. Each has room for REQ_ROOM keys,
as many values, and as many addresses where the searches for the keys begin. The products of a sum follow the rows.

The kernel stops at an event that the fast decoder does not take. It never stays in a bank while Python works: when it
goes on, it compares the number of the exchange, so that all events of a request are predicted with one version.

A feature is *known* if it has a weight in the version; the bias does not count. The kernel counts the known features of
each event, and the events that have none: their prediction says nothing of them.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.events.fast.scanner import decode_row
from stream_learner.core.machine.entries import entry
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.core.machine.kernels import copied, kernel
from stream_learner.core.machine.memory import (
    load_f64,
    load_i64,
    load_u64,
    prefetch_for_read,
    store_f64,
    store_i64,
)
from stream_learner.core.model.losses import prediction
from stream_learner.core.snapshots.kernels import (
    EXCHANGES,
    LOSSES,
    VERSIONS,
    enter,
    first_row,
    leave,
    sum_products,
    weight_from,
)

# Request: what a predictor sets once.
REQ_CONTEXT = 0
REQ_DIRECTORY = 8
REQ_CONTROL = 16
REQ_ROWS = 24
REQ_ROOM = 32
# Request: the events: their bounds i64[n+1] count from REQ_TEXT, from event REQ_INSIDE on from REQ_TAIL.
REQ_TEXT = 40
REQ_TAIL = 48
REQ_INSIDE = 56
REQ_BOUNDS = 64
REQ_P_CLICK = 72
REQ_FIRST = 80
REQ_LAST = 88
# Request: features of event REQ_FIRST if they are in its row already, else NOT_GIVEN; set back by the kernel.
REQ_GIVEN = 96
# Request: the exchange whose version must be used, or ANY_EXCHANGE; set by the kernel, and back when the last is done.
REQ_EXCHANGE = 104
# Request: set by the kernel.
REQ_VERSION = 112
# Request: where the known features of each event go, i64[n], as its prediction goes to REQ_P_CLICK. COUNTS: address of
# two words that go on from request to request: the events predicted, and those of them without a known feature.
REQ_KNOWN = 120
REQ_COUNTS = 128
REQ_BYTES = 136

ANY_EXCHANGE = 0
NOT_GIVEN = -1
CHANGED = -1
"""In place of an event: another version is served than that of the events before."""
NOT_PREDICTED = -1
"""In place of known features: the fast decoder does not take the event."""
SPARE_PRODUCTS = 8

_NO_BANK = np.int64(-1)
_NO_WEIGHT = np.float32(0.0)
_BIAS = np.uint64(BIAS_KEY)


def row_bytes(room: int) -> int:
    """Bytes of a row of so many features."""
    return 24 * room


def rows_bytes(room: int) -> int:
    """Bytes of both rows and the products."""
    return 2 * row_bytes(room) + 8 * (room + SPARE_PRODUCTS)


@kernel
def _row_of(request: int, event: int) -> int:
    """Address of the row of an event."""
    return load_i64(request + REQ_ROWS) + (event & 1) * 24 * load_i64(request + REQ_ROOM)


@copied
def _decode(request: int, event: int) -> int:
    """Decode an event into its row; the number of its features, negative if the decoder does not take it."""
    word = REQ_TEXT if event < load_i64(request + REQ_INSIDE) else REQ_TAIL
    text, bounds = load_i64(request + word), load_i64(request + REQ_BOUNDS) + 8 * event
    row = _row_of(request, event)
    values = row + 8 * load_i64(request + REQ_ROOM)
    at, end = text + load_i64(bounds), text + load_i64(bounds + 8)
    return decode_row(load_i64(request + REQ_CONTEXT), at, end, row, values)


@kernel
def _enter(request: int) -> int:
    """Enter the current bank and note its version; negative, and not entered, if another one is wanted."""
    control = load_i64(request + REQ_CONTROL)
    bank = enter(control)
    exchange, wanted = load_i64(control + EXCHANGES + 8 * bank), load_i64(request + REQ_EXCHANGE)
    if wanted != ANY_EXCHANGE and wanted != exchange:
        leave(control, bank)
        return _NO_BANK
    store_i64(request + REQ_EXCHANGE, exchange)
    store_i64(request + REQ_VERSION, load_i64(control + VERSIONS + 8 * bank))
    return bank


@kernel
def _begin_searches(request: int, event: int, count: int) -> None:
    """Note where the search for each key of a row begins, and ask for that memory."""
    directory, keys = load_i64(request + REQ_DIRECTORY), _row_of(request, event)
    searches = keys + 16 * load_i64(request + REQ_ROOM)
    for i in range(count):
        row = first_row(directory, load_u64(keys + 8 * i))
        store_i64(searches + 8 * i, row)
        prefetch_for_read(row)


@kernel
def _predict(request: int, event: int, count: int, bank: int) -> int:
    """Store the prediction of an event whose searches have begun, and how many of its features are known: returned."""
    room, keys = load_i64(request + REQ_ROOM), _row_of(request, event)
    values, searches = keys + 8 * room, keys + 16 * room
    products = load_i64(request + REQ_ROWS) + 48 * room
    known, weight = np.int64(0), _NO_WEIGHT
    for i in range(count):
        key = load_u64(keys + 8 * i)
        weight = weight_from(load_i64(searches + 8 * i), key, bank)
        known += np.int64(weight != _NO_WEIGHT)
        store_f64(products + 8 * i, np.float64(weight) * load_f64(values + 8 * i))
    if count > 0 and load_u64(keys + 8 * (count - 1)) == _BIAS:
        known -= np.int64(weight != _NO_WEIGHT)
    loss = load_i64(load_i64(request + REQ_CONTROL) + LOSSES + 8 * bank)
    store_f64(load_i64(request + REQ_P_CLICK) + 8 * event, prediction(loss, sum_products(products, count)))
    store_i64(load_i64(request + REQ_KNOWN) + 8 * event, known)
    return known


@kernel
def _count(request: int, events: int, unknown: int) -> None:
    """Count events that were predicted, and those of them without a known feature."""
    counts = load_i64(request + REQ_COUNTS)
    store_i64(counts, load_i64(counts) + events)
    store_i64(counts + 8, load_i64(counts + 8) + unknown)


@entry
def predict_events(request: int) -> int:
    """Predict the events from REQ_FIRST to REQ_LAST - 1; returns REQ_LAST, the event it stopped at, or CHANGED."""
    event, last = load_i64(request + REQ_FIRST), load_i64(request + REQ_LAST)
    given = load_i64(request + REQ_GIVEN)
    store_i64(request + REQ_GIVEN, NOT_GIVEN)
    bank, waiting, first, unknown = _NO_BANK, np.int64(-1), event, np.int64(0)
    while event < last:
        count = given if given >= 0 else _decode(request, event)
        given = np.int64(NOT_GIVEN)
        if count < 0:
            break
        if bank < 0:
            bank = _enter(request)
            if bank < 0:
                return np.int64(CHANGED)
        _begin_searches(request, event, count)
        if waiting >= 0:
            unknown += _predict(request, event - 1, waiting, bank) == 0
        waiting = count
        event += 1
    if bank < 0 and event == last:
        bank = _enter(request)
        if bank < 0:
            return np.int64(CHANGED)
    if waiting >= 0:
        unknown += _predict(request, event - 1, waiting, bank) == 0
    _count(request, event - first, unknown)
    if bank >= 0:
        leave(load_i64(request + REQ_CONTROL), bank)
    if event == last:
        store_i64(request + REQ_EXCHANGE, ANY_EXCHANGE)
    return event


@entry
def predict_one(request: int) -> int:
    """`predict_events` for a request of one event; returns its known features, or NOT_PREDICTED."""
    return load_i64(load_i64(request + REQ_KNOWN)) if predict_events(request) == 1 else np.int64(NOT_PREDICTED)
