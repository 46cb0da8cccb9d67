"""The figures of the sources, made again with this project's optimizers: `make figures`.

In: generated games and logs, and real data where it is there. Out: `docs/figures.md` and its plots.
Nothing here may compute a weight itself: every weight comes out of the fold that learns in production.
"""
