"""Faults put into the code on purpose, one at a time: does a test catch each?

    python -m tools.seeded_faults [NAME …] [--part newcomer|thorough|all] [--tree DIR] [--jobs N] [--json] [--list]

A fault is a small mistake of the kind that people make: a comparison that is off by one, a step that is left out, two
that are swapped. For each, the tree is copied to a temporary folder, the mistake is made in the copy, and the tests
that should catch it are run there. A fault is caught if a test fails twice with it and passes without it.

Whoever changes the tests runs this before and after: nothing that was caught may be missed afterwards. Mistakes in the
protocols of joiner and publisher are in `proofs/simulation/mutations*.py`, which random histories have to notice.
"""
