"""The command: `python -m proofs.simulation.streams "stall of 5 min" 1m --idle-after 10m` runs worlds of streams.

A row has a world and, of its positives in percent, those lost in silence, late, and lost but counted as guessed; the
late and the guessed ones of all impressions; the freshness of live streams; for how long a partition held the learner
back; how long the last windows waited when events had ended; and how many impressions were never emitted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator

from proofs.simulation.mutations_streams import NOTICED_BY, noticed
from proofs.simulation.stream_process import RunSettings
from proofs.simulation.stream_run import Outcome, run_world
from proofs.simulation.stream_worlds import MAIN, worlds

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
HEAD = (
    f"{'':58}| of positives, %      | of all, %     | fresh, s    | held  | last   | never\n"
    f"{'world':53}{'wind.':>5}|  lost   late guessed|   late guessed|   p50   p99 | back s| wait s | emitted"
)


def span_ms(text: str) -> int:
    """The length of a span such as 90s, 30m or 6h."""
    return int(text[:-1]) * UNITS_MS[text[-1]]


def row(name: str, window: str, found: Outcome, *, is_live: bool) -> str:
    """The line of a run."""
    positives = (found.lost, found.late, found.guessed_lost)
    cells = " ".join(_percent(part, found.positives) for part in positives)
    of_all = " ".join(_percent(part, found.impressions) for part in (found.emitted_late, found.guessed))
    fresh = f"{found.fresh(0.5):6.1f}{found.fresh(0.99):6.1f}" if is_live else " " * 12
    waits = f"{found.held_s:6.0f} |{found.last_wait_s:7.0f} | {found.left or ''}"
    return f"{name:53}{window:>5}|{cells} |{of_all} |{fresh} |{waits}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:6.2f}" if part else "     ."


def _run(job: tuple[str, str, RunSettings]) -> str:
    name, window, settings = job
    world = worlds()[name]
    return row(name, window, run_world(world, settings), is_live=world.is_live)


def _jobs(options: argparse.Namespace) -> Iterator[tuple[str, str, RunSettings]]:
    for window in options.window.split(","):
        for name in worlds():
            if (name in MAIN) if options.main else options.world in name:
                settings = RunSettings(
                    span_ms(window), span_ms(options.idle_after), not options.no_hold, options.buffer_bytes
                )
                yield name, window, settings


def _hunt() -> int:
    """Print for each mutation what the world shows that notices it."""
    missed = 0
    for name, (world, _) in NOTICED_BY.items():
        how = noticed(name)
        missed += not how
        print(f"{name}\n    {world}: {'; '.join(how) or 'NOT NOTICED'}", flush=True)
    return int(bool(missed))


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Returns 1 if a mutation was not noticed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m proofs.simulation.streams", description=__doc__.split("\n", 1)[0])
    parser.add_argument("world", nargs="?", default="", help="a part of the name (all); or: mutations")
    parser.add_argument("window", nargs="?", default="1m", help="or several, with commas (1m)")
    parser.add_argument("--idle-after", default="6h", help="how long windows wait in a silence (6h)")
    parser.add_argument("--no-hold", action="store_true", help="clicks are not waited for (hold_on_silence: false)")
    parser.add_argument("--buffer-bytes", type=int, default=256 << 20, help="of each partition")
    parser.add_argument("--main", action="store_true", help="the main worlds only")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them in (1)")
    options = parser.parse_args(arguments)
    if options.world == "mutations":
        return _hunt()
    print(HEAD, flush=True)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for line in pool.imap(_run, list(_jobs(options))):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
