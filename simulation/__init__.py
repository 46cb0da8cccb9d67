"""The protocols of the joiner and of publication, on random histories in one process, with time as an argument.

`kafka` models what the roles see of Kafka; `joiners` and `publishers` run the production code on it; `laws` says what
must hold; `mutations` takes one step of a protocol away at a time. The package is for development only.
"""
