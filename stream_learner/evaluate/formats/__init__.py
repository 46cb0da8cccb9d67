"""Formats of examples: text, or rows of a table, in memory. Nothing here opens a file.

`base` has the types that every format hands out. `json_lines` is the decoder of events over lines of JSON; `csv` (and
`files.parquet`) write rows as such objects. `vw` has kernels of its own, and `libsvm` reads lines with their state.
"""
