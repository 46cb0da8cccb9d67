"""`diff`: two models compared: where their training logs part, at which examples, and because of which clicks.

`run` compares both logs, which `log_walk` reads; `matching` pairs their examples, `differences` counts and lists what
differs, `click_search` finds the clicks behind a label that differs. Columns are compared by `core.log.compare`.
"""
