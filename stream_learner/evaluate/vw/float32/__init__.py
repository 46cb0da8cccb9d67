"""Vowpal Wabbit 9.11 in its own float32: the twin that prints the same digits.

Read `engine` first (one learner, and the loop over examples), then `descent` (the default update) or `sums` (`--ftrl`,
`--pistol`, `--coin`), and `single` (the losses). `layout` has the arrays that they share, `settings` the checked
options.

No term may be reordered here and no float64 literal may meet a float32: results are compared bit by bit with the
tool's. Nothing of the streaming learner may use this package: powers, exponentials and logarithms are those of the
machine's C library, which the tool calls too, so results may differ between machines.
"""
