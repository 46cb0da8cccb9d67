"""Measurements: each `bench_*.py` has `run(quick) -> rows` of name, value, unit and note."""
