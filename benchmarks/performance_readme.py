"""What README says of the speed: ratios first, then the figures by themselves, and the machine.

In: the figures of benchmarks that `performance` keeps. Out: the text between README's marks.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from benchmarks.performance_tables import Figures, machine, table

FIGURES = re.compile(r"<!-- figures: make bench -->\n.*?<!-- /figures -->\n", re.S)
USED = ("decode", "peers", "fold", "predict", "serve", "freshness", "store")
"""The benchmarks whose figures README has."""
WIDTH = 120


def readme_with(figures: Figures, text: str) -> str:
    """README with its figures made anew. Raises KeyError for a figure that there is not."""
    made = f"<!-- figures: make bench -->\n{_said(figures)}\n\n{measured(figures)}\n<!-- /figures -->\n"
    return FIGURES.sub(lambda _: made, text)


def _said(figures: Figures) -> str:
    """On what, when and how it was measured."""
    kept = {name: figures.kept[name] for name in USED}
    machines = "; ".join(dict.fromkeys(machine(one["machine"]) for one in kept.values()))
    days = sorted({one["day"] for one in kept.values()})
    day = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    short = ", ".join(name for name, one in kept.items() if one["quick"])
    text = f"`make bench` on {machines}, {day}, with Kafka on the same cores"
    text += f" (short runs: {short})" if short else ""
    text += ": 39 features, about 600 bytes of JSON. Times are processor time, but for the last two rows."
    return textwrap.fill(text, WIDTH)


def measured(figures: Figures) -> str:
    """The table."""
    rows = [[what, beside(figures), alone(figures)] for what, (beside, alone) in ROWS.items()]
    return table(["what", "beside others", "by itself"], rows)


def times(ratio: float) -> str:
    """A ratio with two digits that mean something."""
    return f"{ratio:.1f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def _nothing(figures: Figures) -> str:
    return ""


def _decode_beside(figures: Figures) -> str:
    kept, dropped = (figures.value("decode", f"decode.times_orjson{name}") for name in ("", "_dropped"))
    return f"{times(kept)} as fast as `orjson.loads` that keeps what it parses, {times(dropped)} as one that drops it"


def _decode(figures: Figures) -> str:
    return f"{figures.value('decode', 'decode.impressions') / 1e6:.2f} M impressions/s"


def _join_beside(figures: Figures) -> str:
    ratio = times(figures.value("peers", "times_kafka-streams"))
    return f"{ratio} cheaper than Kafka Streams' left join, which parses nothing"


def _join(figures: Figures) -> str:
    return f"{figures.join_ns / 1e3:.1f} µs an impression, JSON to training log"


def _fold_beside(figures: Figures) -> str:
    vw, river = (figures.value("fold", f"times_{name}") for name in ("vw", "river"))
    return f"{times(vw)} as fast as `vw --ftrl` from its cache, {times(river)} as River"


def _fold(figures: Figures) -> str:
    one, ten = (figures.value("fold", f"fold_{name}_4000") / 1e6 for name in ("1m", "10m"))
    return f"{one:.2f} M examples/s at 1 M features, {ten:.2f} M at 10 M"


def _loop_beside(figures: Figures) -> str:
    flink, vw, river = (figures.value("peers", f"times_{name}") for name in ("flink", "python-vw", "python-river"))
    return f"{times(flink)} cheaper than Flink, {times(vw)} than Python with VW, {times(river)} than Python with River"


def _loop(figures: Figures) -> str:
    return f"{figures.loop_ns / 1e3:.1f} µs an impression"


def _one_beside(figures: Figures) -> str:
    vw, river = (
        figures.value("predict", f"predict one from bytes, times {name}") for name in ("vowpalwabbit", "river")
    )
    return f"{times(vw)} as fast as VW, {times(river)} as River, from bytes"


def _one(figures: Figures) -> str:
    from_bytes, from_dict = (
        figures.value("predict", f"predict one from {what}, ours") for what in ("bytes", "a dictionary")
    )
    return f"{from_bytes:.1f} µs from bytes, {from_dict:.1f} µs from a dictionary"


def _many(figures: Figures) -> str:
    return f"{figures.value('predict', 'predict many from bytes, CPU') / 1e6:.2f} M events/s from JSON"


def _http_beside(figures: Figures) -> str:
    return f"{times(figures.value('serve', HTTP_TIMES))} cheaper than FastAPI with River"


def _http(figures: Figures) -> str:
    cpu = re.match(r"(\d+) µs of processor", figures.rows("serve")["serve, 1 a request"][2])
    return f"{cpu[1]} µs a request" if cpu else ""


def _fresh(figures: Figures) -> str:
    _, _, how = figures.rows("freshness")["freshness p99"][2].partition(" ticks of ")
    return f"{figures.value('freshness', 'freshness p99'):,.0f} ms with ticks of {how}"


def _restart(figures: Figures) -> str:
    return f"{figures.value('store', 'restart_10m'):.1f} s"


HTTP_TIMES = "processor of River's to ours, 1 a request"
ROWS: dict[str, tuple[Callable[[Figures], str], Callable[[Figures], str]]] = {
    "decode + hash": (_decode_beside, _decode),
    "join from Kafka": (_join_beside, _join),
    "fold": (_fold_beside, _fold),
    "whole loop": (_loop_beside, _loop),
    "predict one": (_one_beside, _one),
    "predict many": (_nothing, _many),
    "HTTP, one event": (_http_beside, _http),
    "freshness p99": (_nothing, _fresh),
    "restart with 10 M features": (_nothing, _restart),
}
"""By what is measured: how it stands beside others, and by itself."""
