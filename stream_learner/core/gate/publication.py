"""Whether a model may be published: how good its last predictions were, and how far those of known examples have moved.

The gate of ticks (`core.gate.gate`) holds what the log says against what it said before. This one holds the model
against itself, for what no count shows: labels that are turned round, a step that is far too large.

    quality   the last window of predictions made before their examples were learned from: normalized entropy,
              calibration and log-loss, against their running means over windows
    change    a reservoir of recent examples, each with its prediction as published: the mean change of a prediction,
              sum |p - p'| / max(sum p, sum p'), and the change that one in a hundred exceeds, |ln (p + e) / (p' + e)|
              with e a tenth of the mean p'; against their running means over ten minutes

A figure is out of bounds if it is beyond its mean by `DEVIATIONS` mean deviations, and by a factor that no season
explains. What is found while it is out of bounds enters no mean, so that the longer it lasts, the more it shows. It is
let through again when all figures are within bounds: the model is then as good, and as it was published. The means of
quality are learned from a backlog too, which is folded far faster than it is published (`learn`).

Times are ticks of the log. But a publication is made when the clock says so; so this is no part of what a replay must
come to again.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord

MINUTE_MS: Final = 60_000
WINDOW_MS: Final = 10 * MINUTE_MS
EVIDENCE: Final = 50.0
"""A window has at least so many positives, found or predicted, and so many negatives; both found, for its entropy."""
DEVIANCE: Final = 40.0
"""Twice the log-likelihood ratio from which on a calibration is not chance: none of ten million windows has it."""
DEVIATIONS: Final = 8.0
MEMORY: Final = 48
"""The running means are over about so many windows: eight hours, where a window is ten minutes."""
WARM_UP: Final = 6
"""So many windows are learned before anything is held against them."""
SAMPLE: Final = 8
"""About so many examples of a tick are admitted to the reservoir, of one tick in `ADMIT_MS`."""
ADMIT_MS: Final = MINUTE_MS // 2
RESERVOIR: Final = 512
FEWEST: Final = 64
"""A reservoir with fewer examples says nothing."""
LARGEST_FEATURES: Final = 1_000
"""Examples of one tick with more features together are not admitted: the reservoir is in every checkpoint."""

ENTROPY, CALIBRATION, LOSS, CHANGE, LARGEST = "normalized_entropy", "calibration", "log_loss", "change", "largest"


class Limits(NamedTuple):
    """How far beyond its mean a figure is in bounds: times a factor at least, and up to a value in any case.

    most: a figure beyond it is out of bounds whatever the mean is; inf for none.
    """

    factor: float
    plus: float
    most: float = float("inf")


LIMITS: Final[Mapping[str, Limits]] = {
    ENTROPY: Limits(1.25, 0.1),
    LOSS: Limits(3.0, 0.0),
    CHANGE: Limits(3.0, 0.25, 0.8),
    LARGEST: Limits(3.0, 1.5, 3.5),
}
CALIBRATION_FACTOR: Final = 2.0
SHORT_CALIBRATION_FACTOR: Final = 3.0
SHORT_FACTOR: Final = 2.0
"""For less than a window: its figures are held against the means of whole ones, with more room."""


class Sums(NamedTuple):
    """Sums over all examples since the beginning of the model, each weighted by its importance."""

    importance: float = 0.0
    label: float = 0.0
    prediction: float = 0.0
    loss: float = 0.0

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Sums:
        """From the figures of `Progress.summary`; without calibration and entropy where the loss has none."""
        importance = summary["importance"]
        is_mean = summary["log_loss"] is not None
        rates = [summary[name] or 0.0 for name in ("label_rate", "prediction_rate", "average_loss")]
        label, prediction = (rate * importance if is_mean else 0.0 for rate in rates[:2])
        return cls(importance, label, prediction, rates[2] * importance)

    def minus(self, other: Sums) -> Sums:
        """The sums since then."""
        return Sums(*(now - then for now, then in zip(self, other, strict=True)))

    @property
    def evidence(self) -> float:
        """How many positives there were, or would be by what was predicted; or negatives, whichever are fewer."""
        return min(max(self.label, self.prediction), self.importance - min(self.label, self.prediction))

    @property
    def normalized_entropy(self) -> float:
        """The mean loss over that of a constant, the rate of positives; there are positives and negatives."""
        rate = self.label / self.importance
        return self.loss / self.importance / (-rate * math.log(rate) - (1.0 - rate) * math.log(1.0 - rate))


class Held(NamedTuple):
    """Why a model must not be published. found: a figure, and what is usual and in bounds; tick: of the model."""

    bound: str
    found: float
    usual: float
    limit: float
    tick: int

    def figures(self) -> dict[str, Any]:
        """The bound and its figures, as fields of a log event."""
        return {"bound": self.bound, "found": self.found, "usual": self.usual, "limit": self.limit}

    @property
    def message(self) -> str:
        """In plain words."""
        return (
            f"{_NOUNS[self.bound]} is {self.found:.4g}, usual is {self.usual:.4g}, in bounds is up to {self.limit:.4g}"
        )


_NOUNS: Final[Mapping[str, str]] = {
    ENTROPY: "the normalized entropy of the last predictions",
    CALIBRATION: "what was predicted over what came, or its inverse,",
    LOSS: "the loss of the last predictions",
    CHANGE: "the mean change of predictions since the last version",
    LARGEST: "the largest change of a prediction since the last version, as a logarithm,",
}


@dataclass(slots=True)
class Usual:
    """A running mean of figures, and the mean of their deviations from it."""

    mean: float = 0.0
    deviation: float = 0.0
    count: int = 0

    def learn(self, value: float) -> None:
        """Take in one more; what is not finite is left out."""
        if not math.isfinite(value):
            return
        self.count += 1
        share = 1.0 / min(self.count, MEMORY)
        distance = value - self.mean
        self.mean += share * distance
        if self.count > 1:
            self.deviation += (abs(distance) - self.deviation) / min(self.count - 1, MEMORY)

    def limit(self, limits: Limits, scale: float = 1.0) -> float:
        """The largest value in bounds. scale: by how much more than usual is to be expected."""
        beyond = self.mean + DEVIATIONS * self.deviation
        return min(limits.most, scale * max(beyond, limits.factor * self.mean, self.mean + limits.plus))


class _Admitted(NamedTuple):
    """Examples of the reservoir, and what was published of them f64[n], or predicted when they came."""

    record: ExampleRecord
    told: NDArray[np.float64]


class PublicationGate:
    """The gate before the publications of one model. Used by one thread."""

    def __init__(self, *, tick_ms: int) -> None:
        self._window = max(1, WINDOW_MS // tick_ms)
        self._minute = max(1, MINUTE_MS // tick_ms)
        self._admit = max(1, ADMIT_MS // tick_ms)
        self._usual = {name: Usual() for name in (ENTROPY, CALIBRATION, LOSS, CHANGE, LARGEST)}
        self._marks: deque[tuple[int, Sums]] = deque()
        self._learned_tick = -1
        self._admitted: deque[_Admitted] = deque()
        self._admitted_tick = -1
        self._told_tick = -1
        self._judged_tick = -1
        """The tick that was judged last; before any was, the first of which examples were admitted."""
        self.held: Held | None = None
        """Why the model is held, None while it is not."""
        self.since_tick = -1
        """The tick at which it was found first."""

    def wants(self, tick: int) -> bool:
        """Whether examples of a tick are to be admitted, before it is folded. While a model is held, none are."""
        return self.held is None and tick // self._admit != self._admitted_tick // self._admit

    def admit(self, tick: int, parts: Sequence[tuple[ExampleRecord, NDArray[np.float64]]]) -> None:
        """Admit examples of a tick, with what is predicted of them before they are learned from."""
        self._admitted_tick = tick
        if self._judged_tick < 0:
            self._judged_tick = tick
        for record, told in parts:
            if int(record.row_len.sum(dtype=np.int64)) <= LARGEST_FEATURES:
                self._admitted.append(_Admitted(record, _finite(told)))
        while sum(len(one.told) for one in self._admitted) > RESERVOIR:
            self._admitted.popleft()

    @property
    def reservoir(self) -> list[ExampleRecord]:
        """The examples whose present predictions `judge` is to be given, in this order."""
        return [one.record for one in self._admitted]

    def wants_sums(self, tick: int) -> bool:
        """Whether `learn` is to be given the sums as of a tick: a minute after the last ones, where no model was judged
        for a window of log time. So it is with a backlog, which is folded far faster than versions are published.
        """
        return 0 <= self._judged_tick <= tick - self._window and self._is_minute(tick)

    def learn(self, tick: int, sums: Sums) -> None:
        """Take in the sums as of a tick that is not published: once a window its figures enter the means, if they are
        within bounds.
        """
        self._note(tick, sums)
        if self.held is None and self._judge_quality(tick, sums) is None:
            self._learn_quality(tick, sums)

    def judge(self, tick: int, sums: Sums, predictions: Sequence[NDArray[np.float64]]) -> Held | None:
        """Why the model as of a tick must not be published, None if it may. `passed` or nothing follows."""
        self._judged_tick = tick
        self._note(tick, sums)
        found = self._judge_quality(tick, sums) or self._judge_change(tick, predictions)
        if found is not None and self.held is None:
            self.since_tick = tick
        self.held = found
        return found

    def _is_minute(self, tick: int) -> bool:
        return not self._marks or tick - self._marks[-1][0] >= self._minute

    def _note(self, tick: int, sums: Sums) -> None:
        """Note the sums once a minute, and forget those before the window."""
        if all(map(math.isfinite, sums)) and self._is_minute(tick):
            self._marks.append((tick, sums))
        while len(self._marks) > 1 and tick - self._marks[1][0] >= self._window:
            if sums.minus(self._marks[1][1]).evidence < EVIDENCE and len(self._marks) < 2 * MEMORY:
                break
            self._marks.popleft()

    def _judge_quality(self, tick: int, sums: Sums) -> Held | None:
        """Hold the last window against the means, and all that it ends with: poison shows best where nothing is mixed
        in."""
        for place, (_, then) in enumerate(self._marks):
            window, whole = sums.minus(then), place == 0
            if window.importance <= 0.0 or not all(map(math.isfinite, window)):
                continue
            found = self._calibration(tick, window, CALIBRATION_FACTOR if whole else SHORT_CALIBRATION_FACTOR)
            found = found or self._figures(tick, window, 1.0 if whole else SHORT_FACTOR)
            if found is not None:
                return found
        return None

    def _figures(self, tick: int, window: Sums, least: float) -> Held | None:
        """The first figure of a window out of bounds. least: a figure up to so many times its mean is within them."""
        for name, value in _quality(window).items():
            usual = self._usual[name]
            limit = max(usual.limit(LIMITS[name]), least * usual.mean)
            if usual.count >= WARM_UP and value > limit:
                return Held(name, value, usual.mean, limit, tick)
        return None

    def _calibration(self, tick: int, window: Sums, factor: float) -> Held | None:
        """Predicted over found, or found over predicted, where that cannot be chance."""
        usual, expected, found = self._usual[CALIBRATION], window.prediction, window.label
        if usual.count < WARM_UP or expected <= 0.0:
            return None
        expected *= math.exp(-usual.mean)
        deviance = 2.0 * ((found * math.log(found / expected) if found > 0.0 else 0.0) - (found - expected))
        ratio = abs(math.log((expected + 1.0) / (found + 1.0)))
        limit = max(math.log(factor), DEVIATIONS * usual.deviation)
        if deviance <= DEVIANCE or ratio <= limit:
            return None
        return Held(CALIBRATION, math.exp(ratio), math.exp(abs(usual.mean)), math.exp(limit), tick)

    def _judge_change(self, tick: int, predictions: Sequence[NDArray[np.float64]]) -> Held | None:
        scale = max(1.0, (tick - self._told_tick) / self._window)
        for name, value in self._changes(predictions).items():
            usual = self._usual[name]
            limit = usual.limit(LIMITS[name], scale)
            if usual.count >= WARM_UP and value > limit:
                return Held(name, value, usual.mean, limit, tick)
        return None

    def _changes(self, predictions: Sequence[NDArray[np.float64]]) -> dict[str, float]:
        if len(predictions) != len(self._admitted) or sum(map(len, predictions)) < FEWEST:
            return {}
        now = _finite(np.concatenate(list(predictions)))
        told = np.concatenate([one.told for one in self._admitted])
        largest = max(float(np.abs(now).sum()), float(np.abs(told).sum()))
        if largest <= 0.0:
            return {}
        least = 0.1 * float(np.abs(told).mean()) + 1e-12
        ratios = np.abs(np.log((np.abs(now) + least) / (np.abs(told) + least)))
        return {CHANGE: float(np.abs(now - told).sum()) / largest, LARGEST: float(np.quantile(ratios, 0.99))}

    def passed(self, tick: int, sums: Sums, predictions: Sequence[NDArray[np.float64]]) -> None:
        """Note that the model as of a tick, which was judged last, is published. Once a window it enters the means."""
        self._learn_quality(tick, sums)
        if self._told_tick < 0 or tick - self._told_tick >= self._window:
            if self._told_tick >= 0 and tick - self._told_tick <= 3 * self._window:
                for name, value in self._changes(predictions).items():
                    self._usual[name].learn(value)
            self._tell(tick, predictions)

    def _learn_quality(self, tick: int, sums: Sums) -> None:
        """Take the last window into the means of its figures, once a window and where it has evidence."""
        window = sums.minus(self._marks[0][1]) if self._marks else Sums()
        if tick - self._learned_tick >= self._window and window.evidence >= EVIDENCE:
            self._learned_tick = tick
            for name, value in _quality(window).items():
                self._usual[name].learn(value)
            if window.label > 0.0 and window.prediction > 0.0:
                self._usual[CALIBRATION].learn(math.log(window.prediction / window.label))

    def _tell(self, tick: int, predictions: Sequence[NDArray[np.float64]]) -> None:
        self._told_tick = tick
        if len(predictions) == len(self._admitted):
            pairs = zip(self._admitted, predictions, strict=True)
            self._admitted = deque(one._replace(told=_finite(now)) for one, now in pairs)

    def accept(self, tick: int, predictions: Sequence[NDArray[np.float64]]) -> None:
        """Let the model through by decision: from now on this is what was published, and all means begin anew."""
        for usual in self._usual.values():
            usual.mean, usual.deviation, usual.count = 0.0, 0.0, 0
        self._marks.clear()
        self.held = None
        self._tell(tick, predictions)

    def state(self) -> dict[str, Any]:
        """Everything, exact, in JSON's types; `restore` takes it."""
        return {
            "usual": {name: [one.mean, one.deviation, one.count] for name, one in self._usual.items()},
            "marks": [[tick, *sums] for tick, sums in self._marks],
            "ticks": [self._learned_tick, self._admitted_tick, self._told_tick, self.since_tick],
            "held": None if self.held is None else list(self.held),
            "reservoir": [_packed(one) for one in self._admitted],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises ValueError, KeyError or TypeError for what is none."""
        for name in self._usual.keys() & set(state["usual"]):
            mean, deviation, count = state["usual"][name]
            self._usual[name] = Usual(float(mean), float(deviation), int(count))
        self._marks = deque((int(tick), Sums(*map(float, sums))) for tick, *sums in state["marks"])
        self._learned_tick, self._admitted_tick, self._told_tick, self.since_tick = map(int, state["ticks"])
        self._admitted = deque(_unpacked(text) for text in state["reservoir"])
        held = state["held"]
        self.held = (
            None if held is None else Held(str(held[0]), float(held[1]), float(held[2]), float(held[3]), int(held[4]))
        )


def _finite(predictions: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(np.nan_to_num(predictions), -1e12, 1e12)


def _quality(window: Sums) -> dict[str, float]:
    """The figures of a window for which there is enough evidence.

    The entropy is divided by that of the window's own labels. Where one label is hardly found, as among the ratings of
    one user who likes everything, the divisor says who came by, not how good the predictions were.
    """
    if window.label <= 0.0 and window.prediction <= 0.0:
        return {LOSS: window.loss / window.importance}
    if window.evidence < EVIDENCE:
        return {}
    found = {LOSS: window.loss / window.importance}
    if min(window.label, window.importance - window.label) >= EVIDENCE:
        found[ENTROPY] = window.normalized_entropy
    return found


_COLUMNS: Final = (("row_len", "<u2"), ("indices", "<u2"), ("positions", "<u4"), ("values", "<f8"), ("keys", "<u8"))


def _packed(one: _Admitted) -> list[Any]:
    """Tick, sizes, and all columns that a prediction needs, as text."""
    record = one.record
    columns = [np.ascontiguousarray(getattr(record, name), kind) for name, kind in _COLUMNS]
    body = b"".join(column.tobytes() for column in (one.told.astype("<f8"), *columns))
    sizes = [len(one.told), *(len(column) for column in columns)]
    return [record.tick, sizes, base64.b64encode(zlib.compress(body, 1)).decode("ascii")]


def _unpacked(packed: Sequence[Any]) -> _Admitted:
    tick, (n, *lengths), text = packed
    kinds = [("told", "<f8"), *_COLUMNS]
    counts = [int(n), *map(int, lengths)]
    size = sum(np.dtype(kind).itemsize * count for (_, kind), count in zip(kinds, counts, strict=True))
    body = zlib.decompress(base64.b64decode(text))
    if len(body) != size:
        raise ValueError("an example of the reservoir is cut off")
    columns: dict[str, Any] = {}
    at = 0
    for (name, kind), count in zip(kinds, counts, strict=True):
        columns[name] = np.frombuffer(body, kind, count, at).astype(np.dtype(kind).newbyteorder("="))
        at += columns[name].nbytes
    told = columns.pop("told")
    zeros = np.zeros(int(n))
    record = ExampleRecord(
        partition=0,
        tick=int(tick),
        attempt=0,
        sequence=0,
        log_time_ms=zeros.astype(np.int64),
        id_hash=zeros.astype(np.uint64),
        label=zeros,
        weight=np.ones(int(n)),
        **columns,
    )
    return _Admitted(record, told)
