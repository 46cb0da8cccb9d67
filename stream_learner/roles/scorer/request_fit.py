"""Whether requests fit the model: counts events of which no feature is known, and names the fields that never are.

A feature is known if it has a weight in the version served; the bias does not count. The kernels count events by
themselves. Which field is unknown they do not tell: for that, about one event a second is kept, and looked at in the
thread that tends the replica, so that no request waits for it.

A field is known once one of its features has had a weight, and unknown after `LEAST_LOOKS` events in which none had.
Names come from the events and the specification, since a model has hashes only. So a field that counts for nothing, or
whose values never come again, is unknown too.

A time whose hour or weekday is a feature is missing where no event has it: a request has no time by itself. Of the
other fields that the specification names one may be rare; where no event has most of them, requests lack what
impressions have. How many features an example usually has a snapshot does not tell.
"""

from __future__ import annotations

import difflib
import re
import string
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.feature_spec import FeatureSpec, covered
from stream_learner.core.events.features import Event, event_text
from stream_learner.core.events.field_numbers import counted_names
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import occurrence, parse_event, read_event, walk
from stream_learner.core.machine.hashing import hash_texts
from stream_learner.core.snapshots.predictor import EventPredictor, counted

NONE, UNKNOWN_ONLY, ANY = 0, 1, 1 << 62
"""Which event is to be kept: the next with fewer known features than this."""
LEAST_LOOKS = 30
MOST_FIELDS = 4_096
"""Names that are remembered; the fields of later ones are not looked at."""
MOST_SAID = 50
"""Fields that the log names in the life of a replica."""
LONGEST_NAME = 200
LETTERS = string.ascii_lowercase + string.digits + "_"
TIME_ACTION = (
    "Send the moment for which you predict, mostly now, under this name and in the form that the impressions have "
    "(docs/features.md): without it the weights of hours and weekdays are left out."
)
ACTION = "Send the fields that the impressions have, by the same names; leave out those whose values never come again."

Weight = Callable[[int], float]


class RequestFit:
    """What the requests of one replica have shown. One thread calls `turn`; any thread may call the rest.

    wanted: an event with fewer known features than this is to be given to `keep`.
    """

    def __init__(self, metrics: Metrics, log: Logger) -> None:
        self.wanted = NONE
        self._metrics = metrics
        self._log = log
        self._turns = 0
        self._kept: deque[bytes] = deque(maxlen=2)
        self._changing = threading.Lock()
        """Held while counts are added up, and while predictors come and go."""
        self._predictors: list[tuple[weakref.ref[EventPredictor], NDArray[np.int64]]] = []
        self._rest = np.zeros(2, np.int64)
        """Counts of predictors that are gone, and of hashed events."""
        self._told = np.zeros(2, np.int64)
        self._looks: Counter[str] = Counter()
        self._known: set[str] = set()
        self._said: set[str] = set()
        self._said_absent: set[str] = set()
        self._absent: dict[str, int] = {}
        """By a field that the specification names, how many events lacked it; -1 once one had it."""

    def follow(self, predictor: EventPredictor) -> None:
        """Count the events of a predictor, of one thread, from now on."""
        with self._changing:
            self._predictors.append((weakref.ref(predictor), predictor.counts))

    def count(self, known: NDArray[np.int64]) -> None:
        """Count events that no predictor has counted, by their known features."""
        with self._changing:
            self._rest += counted(known)

    def keep(self, event: Event) -> None:
        """Keep an event to be looked at, and want no further one before the next turn."""
        self.wanted = NONE
        self._kept.append(event_text(event))

    def turn(self, spec: FeatureSpec, ignored: tuple[str, ...], weight: Weight) -> None:
        """Bring the metrics up to date, look at the event that was kept, and want another one.

        To be called about twice a second: every other time an event without a known feature is wanted, if there is one.
        weight: the weight of a key in the version served.
        """
        self.report()
        plan = Plan(roles={}, features=spec, ignore=ignored)
        while self._kept:
            self._look(plan, self._kept.popleft(), weight)
        self._turns += 1
        self.wanted = ANY if self._turns % 2 else UNKNOWN_ONLY

    def report(self) -> None:
        """Bring the metrics of events up to date."""
        with self._changing:
            gone = [counts for predictor, counts in self._predictors if predictor() is None]
            self._predictors = [(of, counts) for of, counts in self._predictors if of() is not None]
            self._rest += sum(gone)
            total = self._rest + sum(counts for _, counts in self._predictors)
            events, unknown = (total - self._told).tolist()
            self._told = total
        self._metrics.inc(names.SCORER_EVENTS, events)
        self._metrics.inc(names.SCORER_EVENTS_UNKNOWN, unknown)

    def tell_of(self, events: Sequence[bytes], spec: FeatureSpec, ignored: tuple[str, ...], weight: Weight) -> None:
        """Look at all of some events, and tell of the fields that are known in none of them: however few these are, if
        a near name is known.
        """
        plan, named = Plan(roles={}, features=spec, ignore=ignored), counted_names(spec)[0]
        for leaves, weighty in [found for raw in events if (found := self._note(plan, raw, weight)) is not None]:
            unknown = {name: leaves[name] for name in weighty if name in leaves and name not in self._known}
            told = {
                name: value
                for name, value in unknown.items()
                if self._looks[name] >= LEAST_LOOKS
                or (name not in named and name not in self._said and self._nearest(plan, name, value, leaves, weight))
            }
            self._tell("request_fields_unknown", plan, told, leaves, weight)
        self._tell_absent(spec, least=1)

    def _note(self, plan: Plan, raw: bytes, weight: Weight) -> tuple[dict[str, Any], dict[str, bool]] | None:
        """Note which fields of an event are known; its fields, and whether each of them has a weight."""
        try:
            event = parse_event(raw, plan.max_event_bytes)
            row = read_event(plan, event, 0)
        except Refused:
            return None
        leaves = _leaves(event)
        for name in _named(plan.features or FeatureSpec()):
            has = any(covered(leaf, (name,)) for leaf in leaves)
            self._absent[name] = -1 if has or self._absent.get(name, 0) < 0 else self._absent.get(name, 0) + 1
        weighty = {origin: False for origin in row.origins if isinstance(origin, str)}
        for key, origin in zip(row.keys, row.origins, strict=True):
            if isinstance(origin, str) and weight(key):
                weighty[origin] = True
        for name in [name for name in weighty if len(name) <= LONGEST_NAME]:
            if name in self._looks or len(self._looks) < MOST_FIELDS:
                self._looks[name] += 1
        self._known.update(name for name, has in weighty.items() if has and name in self._looks)
        return leaves, weighty

    def _tell_absent(self, spec: FeatureSpec, least: int = LEAST_LOOKS) -> int:
        """Log the times that are features and that no event had, and the other fields that the specification names
        where most of these are in none; each once. Returns how many of the others none of `LEAST_LOOKS` events had.

        least: of so many events a time is told; where it has a feature for a missing value, of `LEAST_LOOKS` in any
        case.
        """
        named = _named(spec)
        times = [name for name in named if name in spec.fields and spec.fields[name].is_time]
        untimed = [
            name
            for name in times
            if self._absent.get(name, 0) >= (LEAST_LOOKS if spec.fields[name].missing == "indicator" else least)
        ]
        others = [name for name in named if name not in times]
        lacking = [name for name in others if self._absent.get(name, 0) >= LEAST_LOOKS]
        most = lacking if len(lacking) > max(len(others) / 2, 1) else []
        of_events = (("request_time_missing", untimed, TIME_ACTION), ("request_fields_missing", most, ACTION))
        for what, fields, action in of_events:
            new = [name for name in fields if name not in self._said_absent]
            self._said_absent.update(new)
            if new:
                self._log.warning(what, fields=new[:MOST_SAID], action=action)
        return len(lacking)

    def _look(self, plan: Plan, raw: bytes, weight: Weight) -> None:
        """Note which fields of an event are known, and tell of those that are not."""
        found = self._note(plan, raw, weight)
        if found is None:
            return
        leaves, weighty = found
        absent = self._tell_absent(plan.features or FeatureSpec())
        unknown = [
            name  # the feature of a field that is missing is no field
            for name in weighty
            if name in leaves and self._looks[name] >= LEAST_LOOKS and name not in self._known
        ]
        self._metrics.inc(names.SCORER_FIELDS, len(weighty) + absent)
        self._metrics.inc(names.SCORER_FIELDS_UNKNOWN, len(unknown) + absent)
        if any(weighty.values()):
            self._tell("request_fields_unknown", plan, {name: leaves.get(name) for name in unknown}, leaves, weight)
            return
        left_out = (*plan.ignore, *(plan.features.exclude if plan.features else ()))
        mine = {name: value for name, value in leaves.items() if not covered(name, left_out)}
        self._tell("request_without_known_feature", plan, mine or {"": None}, leaves, weight)

    def _tell(self, what: str, plan: Plan, fields: dict[str, Any], present: Collection[str], weight: Weight) -> None:
        """Log fields that are not known, each once, with the nearest name that is."""
        new = [name for name in fields if name not in self._said][: MOST_SAID - len(self._said)]
        if not new:
            return
        self._said.update(new)
        shown = [self._with_nearest(plan, name, fields[name], present, weight) for name in new if name]
        self._log.warning(what, fields=shown, action=ACTION)

    def _with_nearest(self, plan: Plan, name: str, value: Any, present: Collection[str], weight: Weight) -> str:
        """A name, and the nearest one that the model knows, if there is one."""
        near = self._nearest(plan, name, value, present, weight)
        return f"{name[:LONGEST_NAME]}: did you mean {near}?" if near else name[:LONGEST_NAME]

    def _nearest(self, plan: Plan, name: str, value: Any, present: Collection[str], weight: Weight) -> str | None:
        """The nearest name that the model knows, None for none."""
        others = {*self._known, *counted_names(plan.features or FeatureSpec())[0]}.difference(present)
        by_lower = {other.lower(): other for other in sorted(others)}
        spellings = (other for other in _spellings(name) if other not in present)
        near = next((other for other in spellings if _has_weight(plan, other, value, weight)), None)
        near = near or next(iter(difflib.get_close_matches(name.lower(), by_lower, n=1)), None)
        return by_lower.get(near, near) if near else None


def _named(spec: FeatureSpec) -> list[str]:
    """The fields that a specification names as features."""
    crossed = (name for cross in spec.crosses for name in cross)
    fields = (name for name, settings in spec.fields.items() if settings.kind != "ignore")
    return [*dict.fromkeys((*spec.include, *spec.categorical, *fields, *crossed))]


def _leaves(event: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that hold values."""
    found = walk(event, lambda _: True)
    return {name: value for name, value in found if value is not None and not isinstance(value, (dict, list))}


def _spellings(name: str) -> list[str]:
    """Other ways to write a name: in small letters, in snake case, in camel case; then, where the last part has 3 to 40
    letters, with one of these added, left out, changed or exchanged with the next.
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    camel = re.sub(r"_(\w)", lambda found: found[1].upper(), snake)
    above, dot, last = name.rpartition(".")
    halves = [(last[:at], last[at:]) for at in range(len(last) + 1 if 3 <= len(last) <= 40 else 0)]
    edits = [left + letter + right[cut:] for left, right in halves for letter in (*LETTERS, "") for cut in (0, 1)]
    edits += [left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1]
    near = (above + dot + edit for edit in edits)
    return [
        other for other in dict.fromkeys((name.lower(), snake, camel, snake.replace("_", ""), *near)) if other != name
    ]


def _has_weight(plan: Plan, name: str, value: Any, weight: Weight) -> bool:
    """Whether a field of this name would be known with this value."""
    field, spec = plan.of(name), plan.features
    if spec is None or not field.feature or value is None:
        return False
    try:
        text, _ = occurrence(field, value, spec.max_value_bytes)
    except Refused:
        return False
    return bool(weight(hash_texts([text])[0]))
