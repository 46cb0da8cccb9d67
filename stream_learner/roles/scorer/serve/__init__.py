"""`serve`: predictions over HTTP.

`workers` is the command: one process, or several that share a socket and are started again when they end. `process` is
one of them: it starts a scorer for each name, answers until a signal, and drains. `served_name` is one name: a scorer
that is replaced when it ends. Routes and protocols are in `adapters/http/`.
"""
