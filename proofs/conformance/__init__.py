"""Holds learners against the papers: this project, and Vowpal Wabbit and River where they are installed.

A *law* is a statement of a paper that a program keeps or breaks (`law`, `laws_descent`, `laws_proximal`), a *subject* a
library held against it (`subject`, `ours`, `wabbit`, `river_subject`). `python -m proofs.conformance` makes the table
of `docs/conformance.md`, with an example for every law that a subject breaks.
"""
