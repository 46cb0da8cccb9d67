"""Aliases, pauses and pins: what operators change in the control topic while a site runs.

`run` is `promote` and `rollback`, which point an alias at a model; `checks` decides whether the model is fit for it.
`aliases` shows and deletes aliases, pauses publication, and pins versions. docs/promotion.md tells what scorers and
learners do then; the records and how they are written are `core.control` and `roles.control`.
"""
