"""Examples in text files: lines into columns, one module a format."""
