"""How the project proves itself, beyond its tests; `README.md` here says what each folder proves and when to run it.

Nothing in `stream_learner` may import it, and no wheel or image holds it.
"""
