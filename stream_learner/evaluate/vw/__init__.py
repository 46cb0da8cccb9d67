"""Vowpal Wabbit (VW) beside this program: its command lines as configurations, in float64 or in its own float32.

`--vw "--adaptive -l 0.3 --loss_function hinge -q ab"` evaluates what that command line of VW 9.11 would learn. There
are two arithmetics, for two questions:

    --vw "… "                        --vw "… --arithmetic vw"
    float64                          float32
    core/model/optimizers/vw         float32/
    hashed weight table              flat array of 2^bits weights
    the learner of production        only here
    the same bits on every machine   the C library's exp, log and pow, as VW calls them
    "what would VW's algorithm       "is this the algorithm of VW at all?":
     do in my deployment?"            the same printed digits

The float32 twin exists to prove the float64 version. Both follow the same formulas, and the twin reproduces VW's
printed average loss and predictions to the last digit: its hashing into `bits` bits, numbers read digit by digit in
float32, its rounding and order of operations, its clipping, holdout and early termination. Tests compare both with the
tool: the twin must print the same digits, and a difference of the float64 version must have a known cause.

`flags` is the table of flags, `command` their meaning together, `model` a command line as a model with VW's printed
loss, `trials` command lines as trials of an evaluation.
"""
