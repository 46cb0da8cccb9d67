"""The kinds of fields, the forms of times, and what may stand for a missing value, as they stand in configurations,
specifications and model records. Imports no other module: the configuration asks it, and `--help` must not wait.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["auto", "category", "number", "log", "bucket", "hour", "weekday", "hour_of_week", "ignore"]
Missing = Literal["skip", "indicator"]
TimeUnit = Literal["ms", "s", "us", "iso", "auto"]
"""As what times are read: `reference` has the rules."""
