"""What must come of a world of streams, and short worlds for the tests: each is the point of one of `stream_worlds`, in
a fraction of its hours.

The bounds are from `docs/stream-clock.md`: nothing is lost in silence, and nobody waits for a partition that is behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from proofs.simulation.stream_process import RunSettings
from proofs.simulation.stream_run import Outcome, run_world
from proofs.simulation.stream_worlds import (
    BEGINNING,
    CLICKED,
    DAY,
    FOR_EVER,
    HOUR,
    MINUTE,
    SECOND,
    Restart,
    Span,
    StreamWorld,
    WrongBatch,
    begins,
    catching_up,
    clicks_dead,
    drifting,
    every_5_min,
    fed,
    kept_back,
    late_by,
    month_old,
    replayed,
    restarts,
    stalled,
    stepped,
    worlds,
)


class Bounds(NamedTuple):
    """The most that a world may show: positives lost in silence, late, and lost but counted as guessed, all impressions
    counted as guessed (percent each); the freshness at the 50th and the 99th percentile, s; how long the last windows
    may wait after a stream has ended, beyond `idle_after`, s; impressions that are never emitted; how long
    a partition may be over a minute behind another for the learner, s.
    """

    lost: float = 0.0
    late: float = 0.0
    guessed_lost: float = 0.0
    guessed: float = 0.0
    p50_s: float = 6.0
    p99_s: float = 15.0
    wait_s: float = 600.0
    left: float = 0
    held_s: float = 60.0


def broken(found: Outcome, bounds: Bounds, *, is_live: bool, idle_after_ms: int) -> list[str]:
    """The bounds that a run has passed."""
    waited_s = found.last_wait_s - idle_after_ms / 1000
    of_all = 100 / max(found.impressions, 1)
    values = {
        "% lost in silence": (found.share(found.lost), bounds.lost),
        "% late": (found.share(found.late), bounds.late),
        "% lost and guessed": (found.share(found.guessed_lost), bounds.guessed_lost),
        "% guessed": (of_all * found.guessed, bounds.guessed),
        "s held back": (found.held_s, bounds.held_s),
        "s waited at the end": (waited_s, bounds.wait_s),
        "never emitted": (found.left, bounds.left),
    }
    if is_live:
        values["s until half were fresh"] = found.fresh(0.5), bounds.p50_s
        values["s until nearly all were fresh"] = found.fresh(0.99), bounds.p99_s
    return [f"{value:.4g} {name}, not {bound:g}" for name, (value, bound) in values.items() if value > bound]


MOST_SAID = 5
"""So often something may begin in a short world."""
OVER = {"clicks_silent": "clicks_again"}
"""The lines that say that something is over, where it is not the same with `_no_more`."""


def wrong_lines(lines: Mapping[str, int], says: Collection[str]) -> list[str]:
    """What is wrong with the lines of the joiner's log, apart from those of its partitions.

    `says` must be said when it begins, and nothing else but that windows wait, as they do at the end; and when it is
    over, before it begins again.
    """
    over = {*OVER.values(), *(line for line in lines if line.startswith("partition_") or line.endswith("_no_more"))}
    begun = {*lines} - over
    wrong = [f"said: {line}" for line in begun - {*says, "windows_wait"}]
    wrong += [f"not said: {line}" for line in {*says} - begun]
    for line in begun:
        begins, ends = lines[line], lines.get(OVER.get(line, f"{line}_no_more"), 0)
        if begins > MOST_SAID or not begins - 1 <= ends <= begins:
            wrong.append(f"{begins} times {line}, {ends} times the end of it")
    return sorted(wrong)


class Short(NamedTuple):
    """A short world, what it may show, the settings that it is run with, and what the joiner says."""

    world: StreamWorld
    bounds: Bounds = Bounds()
    settings: RunSettings = RunSettings(idle_after_ms=10 * MINUTE)
    says: tuple[str, ...] = ()

    def broken(self, *, lines: bool = False) -> list[str]:
        """Run it; returns the bounds that it has passed and, with `lines`, what is said wrongly."""
        found = run_world(self.world, self.settings)
        bounds = broken(found, self.bounds, is_live=self.world.is_live, idle_after_ms=self.settings.idle_after_ms)
        return bounds + wrong_lines(found.lines, self.says) if lines else bounds


PATIENT = RunSettings(idle_after_ms=6 * HOUR)
TIGHT = RunSettings(window_ms=30 * MINUTE, idle_after_ms=10 * MINUTE, buffer_bytes=50_000)


def _short_ways() -> dict[str, Short]:
    behind, clicks_late = late_by(35 * MINUTE), late_by(5 * MINUTE, side=CLICKED)
    one = late_by(35 * MINUTE, partitions=(0,))
    stays = stalled(5 * MINUTE, catches_up=False, from_h=0.15)
    one_stalls = stalled(5 * MINUTE, catches_up=True, from_h=0.15, partitions=(0,))
    return {
        "live": Short(StreamWorld(hours=0.3, is_live=True)),
        "a batch every 5 min": Short(StreamWorld(hours=0.5, way=every_5_min, jitter_ms=0), says=("clicks_lag",)),
        "mirror 35 min behind, a click in 40 s": Short(
            StreamWorld(hours=0.4, way=behind, ctr=0.025), says=("stream_lags",)
        ),
        "lag grows to 10 min in 15": Short(
            StreamWorld(hours=0.5, way=drifting(0, 10 * MINUTE, 0.1, 0.35)),
            Bounds(guessed=2),
            says=("stream_lags", "stream_was_ahead"),
        ),
        "stall of 5 min, stays behind": Short(StreamWorld(hours=0.4, way=stays), says=("clicks_lag", "stream_lags")),
        "clicks alone 5 min late": Short(StreamWorld(hours=0.3, way=clicks_late), says=("clicks_lag",)),
        "clicks alone 5 min late, 5 % of devices 2 h wrong": Short(
            StreamWorld(hours=0.3, way=clicks_late, wrong=0.05), Bounds(late=5), says=("clicks_lag",)
        ),
        "one of 4 partitions 35 min behind, then empty": Short(
            StreamWorld(
                hours=0.4, partitions=4, way=one, begins_h=(-7 / 12, 0, 0, 0), ends_h=(0, 0.4, 0.4, 0.4), ctr=0.025
            ),
            says=("stream_lags",),
        ),
        "mirror 35 min behind, a partition added": Short(
            StreamWorld(hours=0.5, partitions=3, way=behind, begins_h=(0, 0, 0.2)), says=("stream_lags",)
        ),
        "one of 4 partitions stalls 5 min": Short(
            StreamWorld(hours=0.4, partitions=4, way=one_stalls), says=("clicks_lag", "stream_lags")
        ),
        "a full buffer": Short(StreamWorld(hours=1.2, is_live=True), settings=TIGHT),
    }


def _short_restarts() -> dict[str, Short]:
    stalled_2_h = stalled(2 * HOUR, catches_up=False, from_h=0.15)
    clicks_late = late_by(5 * MINUTE, side=CLICKED)
    down = (Restart(BEGINNING + HOUR // 4, HOUR // 4, False),)
    one_stalls = stalled(5 * MINUTE, catches_up=True, from_h=0.15, partitions=(0,))
    one_has_no_clicks = stalled(5 * MINUTE, catches_up=False, from_h=0.15, partitions=(0,), side=CLICKED)
    one_behind = late_by(35 * MINUTE, partitions=(0,))
    one_late = late_by(5 * MINUTE, partitions=(0,), side=CLICKED)
    falls_silent = (Restart(BEGINNING + 0.15 * HOUR + 4 * SECOND, 2 * SECOND, True),)
    return {
        "restart in a stall of 2 h": Short(
            StreamWorld(hours=0.4, way=stalled_2_h, restarts=restarts(0.3, remembers=True)),
            settings=PATIENT,
            says=("clicks_lag", "stream_lags"),
        ),
        "restart as one of 4 partitions falls silent": Short(
            StreamWorld(hours=0.4, partitions=4, way=one_stalls, restarts=falls_silent),
            says=("clicks_lag", "stream_lags"),
        ),
        "restart as the clicks of one of 4 partitions stop": Short(
            StreamWorld(hours=0.4, partitions=4, way=one_has_no_clicks, restarts=falls_silent, seed=2),
            Bounds(lost=0.5),  # before it is known that they do not come; late clicks are counted
            says=("clicks_lag", "clicks_silent"),  # thirty clicks did not come, about
        ),
        "restarts, one of 4 partitions 35 min behind": Short(
            StreamWorld(
                hours=0.4,
                partitions=4,
                rates=(0.2, 2, 2, 2),
                way=one_behind,
                begins_h=(-7 / 12, 0, 0, 0),
                ctr=0.3,
                restarts=restarts(0.15, 0.2, 0.25, 0.3, remembers=True, down_ms=2 * SECOND),
            ),
            says=("stream_lags",),
        ),
        "restarts, the clicks of one of 4 partitions 5 min late": Short(
            StreamWorld(hours=0.5, partitions=4, way=one_late, restarts=restarts(0.3, 0.4, remembers=True)),
            Bounds(guessed_lost=4, guessed=4),  # in the first five minutes, when no click of the partition has come
            says=("clicks_lag",),
        ),
        "restarts, clicks alone 5 min late, nothing remembered": Short(
            StreamWorld(hours=0.4, way=clicks_late, ctr=0.1, restarts=restarts(0.2, 0.3, remembers=False)),
            says=("clicks_lag",),
        ),
        "down for 15 min, slow reader, clicks 5 min late, nothing remembered": Short(
            StreamWorld(hours=0.6, way=clicks_late, restarts=down, most_read=5)
        ),
    }


def _short_troubles() -> dict[str, Short]:
    between = (Span(0, 0.2, 1), Span(-720, -719.8, 1), Span(0.6, 0.8, 1))
    away = stalled(3 * MINUTE, catches_up=True, from_h=0.3, side=CLICKED)
    disorder = kept_back(3 * MINUTE, 0.15, 1_800, side=CLICKED)
    beside = (Span(0, 0.5, 1), Span(-1, 0.2, 0.06, replayed(-1, 0.2, 0.1, 0.33)))
    first = catching_up(5 * MINUTE, 0.2, 0.2 + 45 / 3600)
    again = restarts(0.2 + 15 / 3600, remembers=True, down_ms=5 * SECOND)
    return {
        "impressions catch up before clicks": Short(
            StreamWorld(hours=0.3, ctr=0.1, way=first), says=("clicks_lag", "stream_lags")
        ),
        "impressions 35 min behind catch up before clicks": Short(
            StreamWorld(hours=0.9, ctr=0.1, way=catching_up(35 * MINUTE, 0.7, 0.7 + 45 / 3600)),
            Bounds(lost=0.2),  # one whose click waits when the silence begins, before it is known
            says=("clicks_lag", "stream_lags"),
        ),
        "restart while impressions catch up before clicks": Short(
            StreamWorld(hours=0.3, ctr=0.1, way=first, restarts=again), says=("clicks_lag", "stream_lags")
        ),
        "a replay beside live events, clicks away for 3 min": Short(
            StreamWorld(spans=beside, way=away),
            Bounds(late=14, guessed=1),
            says=("clicks_lag", "stream_was_ahead"),
        ),
        "live, then month-old at 1x, then live": Short(
            StreamWorld(spans=between, way=month_old(720.3)),
            Bounds(late=40, guessed=40),
            says=("stream_lags", "stream_was_ahead"),
        ),
        "old at 60x, then live": Short(
            StreamWorld(spans=(Span(-12, 0.2, 0.05), Span(0.2, 0.4, 1)), way=fed(60, 12, 0.2), jitter_ms=5),
            says=("stream_lags",),
        ),
        "clicks kept back for 3 min, then in disorder": Short(
            StreamWorld(hours=0.4, way=disorder, ctr=0.3, look_s=1),
            Bounds(lost=0.2),  # before it is known that they do not come; late clicks are counted
            says=("clicks_lag",),
        ),
        "wall clock 24 h ahead for 2 s": Short(
            StreamWorld(hours=0.3, is_live=True, wall=stepped(24 * HOUR, 0.15, 2 * SECOND)), says=("clock_differs",)
        ),
        "brokers' clock 1 h ahead for 5 s": Short(
            StreamWorld(hours=0.3, is_live=True, brokers=stepped(HOUR, 0.15, 5 * SECOND)),
            says=("clock_differs", "stream_lags"),
        ),
        "brokers' clock 5 min back for ever": Short(
            StreamWorld(hours=0.3, is_live=True, brokers=stepped(-5 * MINUTE, 0.15, FOR_EVER)),
            Bounds(guessed=100, p50_s=320, p99_s=960),
            says=("clock_differs", "stream_was_ahead"),
        ),
        "5 % of devices 2 h wrong": Short(StreamWorld(hours=0.3, is_live=True, wrong=0.05), Bounds(late=5)),
        "9 in a row a year ahead": Short(StreamWorld(hours=0.3, is_live=True, batch=WrongBatch(0, 300, 365 * DAY, 9))),
        "clicks dead after 2 min": Short(
            StreamWorld(hours=0.2, per_s=10, ctr=0.05, way=clicks_dead(1 / 30)), Bounds(lost=10, left=FOR_EVER)
        ),
    }


def _short_beginnings() -> dict[str, Short]:
    """Joiners that begin when the topics hold what came before."""
    dead, healthy = clicks_dead(0.2), StreamWorld(hours=0.7, restarts=begins(0.4))
    wait, down = Bounds(left=FOR_EVER), (Restart(BEGINNING + 0.2 * HOUR, int(0.2 * HOUR), True),)
    flood = stalled(HOUR // 2, catches_up=True, from_h=0.2, side=CLICKED)
    disorder = kept_back(5 * MINUTE, 0.36, 1_800, side=CLICKED)
    sparse = StreamWorld(hours=1.2, partitions=8, per_s=0.1, ctr=0.05, restarts=begins(0.9), way=clicks_dead(0.5))
    return {
        "begins with a history": Short(healthy),
        "begins with a history, 5 % of devices 2 h wrong": Short(replace(healthy, wrong=0.05), Bounds(late=5)),
        "begins when clicks are dead": Short(replace(healthy, way=dead), wait, says=("clicks_silent",)),
        "begins when clicks are dead and the topics have ended": Short(
            StreamWorld(hours=0.25, partitions=1, way=dead, restarts=begins(0.5)),
            wait,  # too few to alarm
        ),
        "begins when clicks are dead, 5 % of devices 2 h wrong": Short(
            replace(healthy, way=dead, wrong=0.05), wait._replace(late=5), says=("clicks_silent",)
        ),
        "begins when clicks of 8 sparse partitions are dead": Short(
            sparse,
            wait._replace(lost=12),  # seven clicks of 64: one in 1,000 is chance, and more are waited for
            says=("clicks_silent",),
        ),
        "begins when clicks are dead, that come after all": Short(
            StreamWorld(hours=0.9, way=flood, restarts=begins(0.4)),
            says=("clicks_lag", "clicks_silent"),
        ),
        "begins when few clicks are dead, that come after all": Short(
            StreamWorld(hours=0.9, per_s=0.2, way=flood, restarts=begins(0.4)),
            Bounds(lost=2),  # as below
            says=("clicks_lag",),
        ),
        "begins when clicks are kept back, that come in disorder": Short(
            StreamWorld(hours=0.7, ctr=0.3, way=disorder, restarts=begins(0.4), look_s=1),
            Bounds(lost=0.5),  # before it is known that they do not come; late clicks are counted
            says=("clicks_lag", "clicks_silent"),
        ),
        "clicks die while the joiner is down": Short(
            StreamWorld(hours=0.7, way=clicks_dead(0.21), restarts=down), wait, says=("clicks_silent",)
        ),
    }


SHORT = {**_short_ways(), **_short_restarts(), **_short_troubles(), **_short_beginnings()}

WHOLE = {
    "lag grows to 35 min in an hour": Bounds(guessed=0.6),
    "lag grows to 2 h in 40 min": Bounds(guessed_lost=0.4, guessed=25),
    "stall of 30 s, stays behind": Bounds(guessed_lost=0.1, guessed=0.2),
    "stall of 5 min, stays behind": Bounds(guessed_lost=0.1, guessed=0.2),
    "stall of 20 min, stays behind": Bounds(guessed_lost=0.1, guessed=0.2),
    "stall of 2 h, stays behind": Bounds(guessed_lost=0.1, guessed=0.2),
    "mirror 35 min behind, stalls 20 min": Bounds(guessed_lost=0.1, guessed=0.2),
    "one of 4 stalls 20 min, stays behind": Bounds(guessed_lost=0.1, guessed=0.2),
    "clicks alone stall 5 min, stay behind": Bounds(guessed_lost=0.1, guessed=0.4),
    "old at 60x, then live": Bounds(late=1.0, guessed=0.4),
    "live, then month-old at 1x, then live": Bounds(late=30, guessed=31),
    "live, among three times as many month-old": Bounds(late=65, guessed_lost=4, guessed=32, p99_s=500),
    "restart in a stall of 2 h, nothing remembered": Bounds(late=63, guessed_lost=0.2, guessed=1.5),
    "5 % of devices 2 h wrong": Bounds(late=3.5, p99_s=25),
    "mirror 35 min behind, 5 % of devices 2 h wrong": Bounds(late=3.5, wait_s=FOR_EVER),
    "32 in a row 2 h behind": Bounds(late=0.4),
    "live, an event a minute": Bounds(p99_s=70),
    "live, 10 events an hour": Bounds(p99_s=300),
    "wall 24 h ahead for 2 s, slow": Bounds(p99_s=130),
    "live, clicks 1 %, 3 a second": Bounds(p99_s=35),
    "live, heavy tail": Bounds(p99_s=30),
    "brokers' clock 5 min back for ever": Bounds(guessed=65, p50_s=130, p99_s=270, held_s=420),
    **{
        name + rest: Bounds(p99_s=35)
        for name in ("restarts, live", "restarts, wall 24 h ahead since")
        for rest in ("", ", nothing remembered")
    },
    **{f"wall clock 1 h {name} for ever": Bounds(p99_s=20) for name in ("ahead", "back")},
    "wall clock 1 h ahead for 5 s": Bounds(p99_s=20),
    "wall clock 24 h ahead for 2 s": Bounds(p99_s=20),
    **{f"clicks dead after {name}": Bounds(lost=15, left=FOR_EVER) for name in ("2 min", "20 min", "2 h")},
    "begins when clicks are dead": Bounds(left=FOR_EVER),
    "begins when clicks are dead and the topics have ended": Bounds(left=FOR_EVER),
    "begins when clicks are dead, 5 % of devices 2 h wrong": Bounds(late=3.5, left=FOR_EVER),
    "clicks die while the joiner is down": Bounds(left=FOR_EVER),
}
"""The bounds of whole worlds with a window of a minute and an `idle_after` of 6 h, where they are not those of all: a
little more than what the rule showed before there was code, where looks were at other moments, windows did not close by
whole ticks, and clicks that stop were not waited for.
"""


def broken_in_whole(name: str, window_ms: int = MINUTE) -> list[str]:
    """Run a whole world; returns the bounds that it has passed."""
    world, settings = worlds()[name], replace(PATIENT, window_ms=window_ms)
    bounds = WHOLE.get(name, Bounds())
    return broken(run_world(world, settings), bounds, is_live=world.is_live, idle_after_ms=settings.idle_after_ms)
