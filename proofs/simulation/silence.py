"""Measures how often the rule of silent clicks is wrong, how soon it is right: `python -m proofs.simulation.silence`.

For generated streams it prints how often a joiner would have held the join although clicks came as ever, and how long
it takes to notice when they have stopped; and how often windows would have waited for a click that came, in what share
of the time, and for how long: a window that ends at a random moment on average, and the longest. A stream is two
numbers for each second: impressions and clicks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.roles.joiner.click_silence import Arrived, ClickSilence

DAY_S = 86_400
START_MS = 1_700_000_000_000
STOPPED_S = 2 * DAY_S
"""The time that a stream goes on without clicks at its end, in which the rule should notice."""

Counts = NDArray[np.int64]


class Site(NamedTuple):
    """per_s: impressions a second. ctr: the share of them that is clicked, on average."""

    per_s: float
    ctr: float


SITES = (Site(0.02, 0.02), Site(0.1, 0.01), Site(1, 0.02), Site(20, 0.02), Site(1000, 0.01))


class Result(NamedTuple):
    """holds, held_s: how often, and how long, the rule held the join for no reason. noticed_s: the time from the last
    click to the hold, None if there was none.
    """

    stream: str
    site: Site
    days: int
    holds: int
    held_s: int
    noticed_s: int | None
    missed: float
    """The clicks that would have come until the hold."""
    waits_s: list[int]
    """How long windows waited, each time, although clicks came as ever."""

    @property
    def mean_wait_s(self) -> float:
        """How much later a window closes on average."""
        return sum(wait * wait for wait in self.waits_s) / 2 / (self.days * DAY_S)


def streams(site: Site, days: int, rng: np.random.Generator) -> Iterator[tuple[str, Counts, Counts]]:
    """Every kind of stream: its name, its impressions and its clicks."""
    n = days * DAY_S
    seconds = np.arange(n)
    flat = np.full(n, site.per_s)
    cycle = 10 ** (0.5 * np.sin(2 * np.pi * seconds / DAY_S))  # ten times as much by day as by night
    clicks = site.per_s * site.ctr
    yield "Poisson", rng.poisson(flat), rng.poisson(flat * site.ctr)
    yield "ten times the traffic by day", rng.poisson(flat * cycle), rng.poisson(flat * cycle * site.ctr)
    yield "ten times the CTR by day", rng.poisson(flat), rng.poisson(flat * cycle * site.ctr)
    yield "both", rng.poisson(flat * cycle), rng.poisson(flat * cycle**2 * site.ctr)
    yield "a CTR that drifts by e", rng.poisson(flat), rng.poisson(clicks * _drift(n, rng))
    yield "clicks in one minute of ten", rng.poisson(flat), rng.poisson(10 * clicks * (seconds // 60 % 10 == 0))
    yield "clicks in batches of 5 minutes", rng.poisson(flat), _batches(n, clicks, 300, rng)
    yield "clicks in clusters", rng.poisson(flat), _clusters(n, clicks, rng)


def _drift(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A factor whose logarithm wanders about 0 with a standard deviation of 1, within an hour or so."""
    log = np.zeros(n // 60)
    for minute, step in enumerate(rng.normal(0, 0.2, len(log) - 1), 1):
        log[minute] = 0.98 * log[minute - 1] + step
    return np.repeat(np.exp(log - 0.5), 60)


def _batches(n: int, per_s: float, every_s: int, rng: np.random.Generator) -> Counts:
    found = np.zeros(n, np.int64)
    found[::every_s] = rng.poisson(per_s * every_s, len(found[::every_s]))
    return found


def _clusters(n: int, per_s: float, rng: np.random.Generator) -> Counts:
    """Clusters of 1 to 1,000 clicks, most of them small, each spread over five minutes or so."""
    sizes = np.minimum(rng.pareto(1.2, max(int(per_s * n / 10), 1)) * 3 + 1, 1000).astype(np.int64)
    sizes = sizes[: max(int(np.searchsorted(np.cumsum(sizes), per_s * n)), 1)]
    starts = np.repeat(rng.integers(0, n, len(sizes)), sizes)
    at = (starts + rng.exponential(300, len(starts))).astype(np.int64)
    return np.bincount(at[at < n], minlength=n)


def watch(stream: str, site: Site, impressions: Counts, clicks: Counts, rng: np.random.Generator) -> Result:
    """Run the rule over a stream, then on without clicks until it holds."""
    silence = ClickSilence()
    holds = held_s = waited_s = 0
    waits_s = []
    for second, (shown, clicked) in enumerate(zip(impressions.tolist(), clicks.tolist(), strict=True)):
        before = silence.held
        silence.note(Arrived(START_MS + 1000 * second, shown, clicked))
        holds += silence.held > before
        held_s += silence.held
        waits = silence.waits_since_ms is not None
        if waited_s and not waits:
            waits_s.append(waited_s)
        waited_s = waited_s + 1 if waits else 0
    noticed_s = _noticed(silence, START_MS + 1000 * len(impressions), rng.poisson(site.per_s, STOPPED_S).tolist())
    missed = (noticed_s or 0) * site.per_s * site.ctr
    return Result(stream, site, len(impressions) // DAY_S, holds, held_s, noticed_s, missed, waits_s)


def _noticed(silence: ClickSilence, at_ms: int, impressions: list[int]) -> int | None:
    for second, shown in enumerate(impressions):
        if silence.held:
            return second
        silence.note(Arrived(at_ms + 1000 * second, shown, 0))
    return None


def results(days: int, seed: int, sites: tuple[Site, ...] = SITES) -> Iterator[Result]:
    """The results for every stream of every site."""
    for number, site in enumerate(sites):
        rng = np.random.default_rng([seed, number])
        for name, impressions, clicks in streams(site, days, rng):
            yield watch(name, site, impressions, clicks, rng)


def main(
    arguments: list[str] | None = None, say: Callable[[str], None] = print, sites: tuple[Site, ...] = SITES
) -> int:
    """Print a line for each stream, and the sum. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m proofs.simulation.silence", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--days", type=int, default=30, help="length of each stream (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the generator (1)")
    parser.add_argument("--clicks", help="sites with so many clicks a second, with commas, each of 50 impressions")
    options = parser.parse_args(arguments)
    if options.clicks:
        sites = tuple(Site(float(per_s) * 50, 0.02) for per_s in options.clicks.split(","))
    say(
        f"{'stream':32}{'impressions/s':>14}{'clicks/h':>13}{'held wrongly':>14}{'for s':>8}{'noticed after s':>17}"
        f"{'waits a day':>13}{'% of time':>11}{'mean s':>9}{'most s':>8}"
    )
    days = holds = 0
    for r in results(options.days, options.seed, sites):
        days, holds = days + r.days, holds + r.holds
        noticed = f"{r.noticed_s:,}" if r.noticed_s is not None else "never"
        clicks = r.site.per_s * r.site.ctr * 3600
        waits = f"{len(r.waits_s) / r.days:13,.1f}{100 * sum(r.waits_s) / r.days / DAY_S:11.3f}{r.mean_wait_s:9.2f}"
        waits += f"{max(r.waits_s, default=0):8,}"
        say(f"{r.stream:32}{r.site.per_s:14g}{clicks:13,.1f}{r.holds:14}{r.held_s:8,}{noticed:>17}{waits}")
    say(f"{holds} times in {days:,} days, once in {days / holds:,.0f}" if holds else f"never in {days:,} days")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
