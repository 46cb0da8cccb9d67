"""Text and tables as examples, without I/O: blocks of whole lines in, columns of examples out; one module a format.

`base` has the types that every format hands out. `csv` and `libsvm` are kernels of their own over what `kernel_state`
and `kernel_parser` share; `table` does the same for the columns of a typed table. They write features through the
context of `core.events.fast`, so that they are those of the joiner. `json_lines` uses the decoder of events itself, and
`vw/` has an engine of its own. `evaluate/files` calls these parsers.

Kernels read and write columns at addresses, since a whole line takes well under a microsecond. The state is a record
with named fields, and in `vw/` words by offset, which measured faster there.
"""
