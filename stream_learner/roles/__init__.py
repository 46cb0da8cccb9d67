"""The order of things: joiner, learner, scorer. What to do next lives here; how, in core and adapters."""
