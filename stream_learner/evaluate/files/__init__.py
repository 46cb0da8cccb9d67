"""Files of examples and standard input: opened, decompressed, cut into blocks of whole lines."""
