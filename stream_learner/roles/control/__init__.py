"""The control topic: what operators say while a site runs, as aliases, pauses and pins.

`topic` reads it whole and writes to it, for the commands that operators run. `watch` follows it in a thread, for
learners and scorers, which obey it. `core.control` makes one state of all its records.
"""
