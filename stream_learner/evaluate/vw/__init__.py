"""Vowpal Wabbit (VW) beside this program: its command lines as configurations.

`--vw "--adaptive -l 0.3 --loss_function hinge -q ab"` evaluates what that command line of VW 9.11 would learn, with the
learner of production: its float64, its table of weights, the same bits on every machine. Features are VW's own, with
its hashing into `bits` bits.

VW itself computes in float32. Tests hold this against the tool and against an oracle of its formulas: the average loss
must be the one it prints, in all digits, for its own reference commands and for the default update; any other
difference must have a known cause, mostly that rounding decides.

`flags` is the table of flags, `command` their meaning together, `settings` what a learner of VW is made of, `model` the
trial of a command line with VW's printed loss, `trials` command lines as trials of an evaluation.
"""
