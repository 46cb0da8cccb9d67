"""Code that several roles share; a single role has no file here.

Begin with `lifecycle`: the loop that every role has, what stops it, and what probes are told. `startup` and `compile`
come before it: a signal while a role starts, and kernels that are compiled first. `child` runs a module of ours as a
second process. `log_reader` reads the training log, `last_publication` the end of the snapshot topic, for roles and
commands alike, and `key_rule` both. `record_sizes` makes records fit what topics take.
"""
