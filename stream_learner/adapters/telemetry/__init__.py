"""Telemetry: metrics and logs of a process.

`metric_names.py` declares every metric; `docs/metrics.md` is made from it. `metrics.py` holds the values of one
process, writes them as Prometheus text, and merges the texts of several processes. `logs.py` sends every log and every
warning of Python to stderr, as events with fields; `episode.py` logs what begins and is over later.
`adapters/http/thread.py` serves the metrics. Roles and operations call all of them.
"""
