"""The figures of the sources, made again with this project's optimizers: `make figures`.

Each figure is a module with `run(quick)` that returns a `page.Figure`: the claims of a source beside what was measured.
`play` runs examples and games through the fold that learns in production, so no figure computes a weight itself;
`data` reads real data where it is there; `page` writes `docs/figures.md` with its plots.
"""
