"""Several texts of metrics as one.

In: texts in Prometheus's format, as `Metrics.text` gives them. Out: one text, each family once. This file must never
change a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def merged(texts: Iterable[tuple[Mapping[str, str], bytes]]) -> bytes:
    """The samples of all texts, by family; the labels that stand beside a text are added to each of its samples.

    Of samples of the same name and labels the first stays: what is true of the whole process is in all of its texts.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, str]] = {}
    for labels, text in texts:
        family = ""
        for line in text.decode().splitlines():
            if line.startswith("# "):
                _, kind, family, _ = line.split(" ", 3)
                if kind == "HELP":
                    heads.setdefault(family, [])
                if family in heads and not samples.get(family) and line not in heads[family]:
                    heads[family].append(line)
                samples.setdefault(family, {})
            elif line:
                series, _, value = line.rpartition(" ")
                samples[family].setdefault(_with_labels(series, labels), value)
    lines = [
        line
        for family, head in heads.items()
        for line in (*head, *(f"{series} {value}" for series, value in samples[family].items()))
    ]
    return ("\n".join(lines) + "\n").encode()


def _with_labels(series: str, labels: Mapping[str, str]) -> str:
    if not labels:
        return series
    added = ",".join(f'{name}="{value}"' for name, value in labels.items())
    name, brace, rest = series.partition("{")
    return f"{name}{{{added},{rest}" if brace else f"{name}{{{added}}}"
