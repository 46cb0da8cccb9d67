"""Mutations of the stream's own clock: the joiner without one piece of the rule, which a short world must notice."""

from __future__ import annotations

from typing import Any

from proofs.simulation.patches import Patches, patched
from proofs.simulation.stream_bounds import SHORT
from proofs.simulation.stream_process import StreamProcess
from stream_learner.core.join.impressions import ImpressionBuffer
from stream_learner.roles.joiner import stream_clock
from stream_learner.roles.joiner.click_silence import Backlog, SilenceWatch
from stream_learner.roles.joiner.stream_clock import Arrivals, Guesses, Remembered, StreamClock, TopicArrivals
from stream_learner.roles.joiner.ticks import Ticks


def _after_add(change: Any) -> Patches:
    """Arrivals that change something of themselves after each arrival."""
    right = Arrivals.add

    def add(self: Arrivals, offsets: list[int], m: int) -> None:
        right(self, offsets, m)
        if offsets:
            change(self)

    return [(Arrivals, "add", add)]


def _median_only(arrivals: Arrivals) -> None:
    arrivals.slow = arrivals.fast


def _newest_only(arrivals: Arrivals) -> None:
    arrivals.slow = arrivals.fast = arrivals._offsets[-1]


def _all_arrive() -> Patches:
    found: Patches = []
    for name in ("note_impressions", "note_clicks"):
        right = getattr(StreamClock, name)

        def note(self: StreamClock, *args: Any, right: Any = right, arrived: bool = False, closed_ms: int = 0) -> None:
            right(self, *args, arrived=True, closed_ms=closed_ms)

        found.append((StreamClock, name, note))
    return found


def _no_topic() -> Patches:
    right = StreamClock.__post_init__

    def begin(self: StreamClock) -> None:
        right(self)
        self.topics = TopicArrivals.none_yet(self.rule)

    return [(StreamClock, "__post_init__", begin)]


def _few_say_nothing() -> Patches:
    right = stream_clock._agreed
    return [(stream_clock, "_agreed", lambda own, *rest: right(own if own.known else Arrivals(0), *rest))]


def _topic_before_memory() -> Patches:
    right = stream_clock._agreed
    return [
        (stream_clock, "_agreed", lambda own, topic, kept: right(own, topic, None if topic.known else kept)),
        (StreamClock, "_clicks_came", lambda self, base: None),  # which would wait for a click that has come so late
    ]


def _coupled() -> Patches:
    right = Ticks.__init__

    def begin(self: Ticks, *args: Any, coupled: bool) -> None:
        right(self, *args, coupled=True)

    return [(Ticks, "__init__", begin)]


def _ended() -> Patches:
    right = StreamClock.stream_ms

    def stream_ms(self: StreamClock, m: int, base: int, *, waits_since: int | None = None, **rest: Any) -> int | None:
        found = right(self, m, base, waits_since=waits_since, **rest)
        return right(self, m, base, **rest) if found is None else found

    return [(StreamClock, "stream_ms", stream_ms)]


def _first_in_time() -> Patches:
    right = StreamClock._extra

    def extra(self: StreamClock, m: int, base: int) -> int | None:
        found = right(self, m, base)
        return 0 if found is None and self.topics.clicks.count else found

    return [(StreamClock, "_extra", extra)]


def _partitions_alone() -> Patches:
    right = SilenceWatch.end_backlog

    def end_backlog(self: SilenceWatch, *args: int) -> None:
        self._counted_all = True
        right(self, *args)

    return [(SilenceWatch, "end_backlog", end_backlog)]


NOTICED_BY: dict[str, tuple[str, Any]] = {
    "no hold: windows close while nothing comes": (
        "stall of 5 min, stays behind",
        lambda: [(StreamClock, "stood_at", lambda self, m, base, **rest: m)],
    ),
    "median only: the last three arrivals cannot slow the clock": (
        "stall of 5 min, stays behind",
        lambda: _after_add(_median_only),
    ),
    "newest only: the newest arrival alone says the lag": (
        "clicks alone 5 min late, 5 % of devices 2 h wrong",
        lambda: _after_add(_newest_only),
    ),
    "no relearning: after a silence the old arrivals still count": (
        "stall of 5 min, stays behind",
        lambda: [(Arrivals, "is_silent", lambda self, m: False)],
    ),
    "no click delay: clicks are taken to come with the impressions": (
        "clicks alone 5 min late",
        lambda: [(StreamClock, "_extra", lambda self, m, base: 0)],
    ),
    "clicks are taken to catch up with the impressions": (
        "impressions catch up before clicks",
        lambda: [(StreamClock, "_clicks_came", lambda self, base: None)],
    ),
    "no topic: a partition knows its own arrivals only": (
        "mirror 35 min behind, a partition added",
        _no_topic,
    ),
    "backlog is arrival: what is read late counts as having come late": (
        "a full buffer",
        _all_arrive,
    ),
    "old events are arrivals: a replay says the lag of live events beside it": (
        "a replay beside live events, clicks away for 3 min",
        lambda: [(StreamClock, "_without_old", lambda self, times_ms, closed_ms: times_ms)],
    ),
    "clicks on old events are arrivals": (
        "a replay beside live events, clicks away for 3 min",
        lambda: [(StreamClock, "_without_those_of_old", lambda self, times_ms, m, closed_ms: times_ms)],
    ),
    "nothing that was guessed is counted": (
        "lag grows to 10 min in 15",
        lambda: [(Guesses, "look", lambda self, m, base, closed_ms: None)],
    ),
    "wall clock: in place of the monotonic one": (
        "wall clock 24 h ahead for 2 s",
        lambda: [(StreamProcess, "monotonic_ms", lambda self: self.wall_ms() - self._booted)],
    ),
    "coupled: a mark closes ticks and windows together": (
        "one of 4 partitions 35 min behind, then empty",
        _coupled,
    ),
    "nothing is remembered over a restart": (
        "restart in a stall of 2 h",
        lambda: [(Remembered, "from_text", lambda text: None)],
    ),
    "the moments of a partition alone are forgotten over a restart": (
        "restart as one of 4 partitions falls silent",
        lambda: [(StreamClock, "_own_until", lambda self, m, base: (None, None))],
    ),
    "the first arrivals of a partition say nothing of its own": (
        "restarts, one of 4 partitions 35 min behind",
        _few_say_nothing,
    ),
    "the lag of a partition is forgotten over a restart where others are live": (
        "restarts, one of 4 partitions 35 min behind",
        _topic_before_memory,
    ),
    "a silence ends with the first arrival": (
        "clicks kept back for 3 min, then in disorder",
        lambda: [(Arrivals, "vouched_until", lambda self, m: self._usual_until)],
    ),
    "clocks far ahead count in the rows of others": (
        "9 in a row a year ahead",
        lambda: [(ImpressionBuffer, "tell_clock", lambda self, brokers_ms: None)],
    ),
    "clicks that stop are not waited for": (
        "clicks dead after 2 min",
        lambda: [(SilenceWatch, "waits_since", lambda self, partition: None)],
    ),
    "a history tells nothing of clicks": (
        "begins when clicks are dead",
        lambda: [(SilenceWatch, "end_backlog", lambda self, *rest: None)],
    ),
    "what came while nobody joined tells nothing of clicks": (
        "clicks die while the joiner is down",
        lambda: [(SilenceWatch, "end_backlog", lambda self, *rest: None)],
    ),
    "each partition has its history for itself": (
        "begins when clicks of 8 sparse partitions are dead",
        _partitions_alone,
    ),
    "a topic that has ended has no clicks to wait for": (
        "begins when clicks are dead and the topics have ended",
        _ended,
    ),
    "a click whose clock is ahead ends a silence of the history": (
        "begins when clicks are dead, 5 % of devices 2 h wrong",
        lambda: [(Backlog, "until", lambda self, log_time_ms: self)],
    ),
    "the first three clicks tell how late the others are": (
        "begins when clicks are kept back, that come in disorder",
        lambda: [(Arrivals, "goes_on", lambda self, m: self.count > 0)],
    ),
    "the first clicks after a silence of the history come in time": (
        "begins when few clicks are dead, that come after all",
        _first_in_time,
    ),
}
"""Each mutation, the short world that notices it, and its patches."""


def noticed(name: str, world: str = "") -> list[str]:
    """The bounds that a short world passes under a mutation, or else what is said wrongly; by default of the world that
    is named with it.
    """
    of, patches = NOTICED_BY[name]
    with patched(patches()):
        return SHORT[world or of].broken() or SHORT[world or of].broken(lines=True)
