"""Aliases, pauses and pins: what operators tell learners and scorers through the control topic.

`records` has the types and their bytes, `state` what the records of the topic add up to. `roles.control` reads the
topic and writes to it; `operations.promote` makes changes.
"""
