"""Files of examples: opened, decompressed, cut into blocks of whole lines, and led to the parsers of `formats/`.

Bytes come through `streams` (one file, decompressed), `lines` (blocks of whole lines, made ahead by a thread) and
`source` (several files, one after another); `parquet` does all of this for Parquet. `formats` tells which format a file
has, and `reading` puts source and parser together. `evaluate/readers` is the caller.
"""
