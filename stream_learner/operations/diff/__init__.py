"""`diff`: two models compared: where their training logs part, at which examples, and because of which clicks.

`run` walks both logs, `differences` counts and lists what differs, `click_search` finds the clicks behind a label that
differs. Two ticks are compared by `core.log.compare`.
"""
