"""Command lines of Vowpal Wabbit that the oracle and the program are both held against."""

from __future__ import annotations

REFERENCES = [
    ("--ftrl --ftrl_alpha 0.01 --ftrl_beta 0 --l1 2", "0001.dat.gz"),
    ("--ftrl --ftrl_alpha 0.01 --ftrl_beta 0 --l1 2 --passes 10 --holdout_off", "0001.dat.gz"),
    ("--ftrl", "0002_25.dat"),
    ("--pistol", "0002_25.dat"),
    ("--coin", "0002_25.dat"),
    ("", "0001.dat.gz"),
    ("", "0002.dat.gz"),
    ("--loss_function logistic", "0001_25.dat.gz"),
    ("--loss_function hinge -b 7", "0002_25.dat"),
    ("--loss_function quantile --quantile_tau 0.5 -b 7", "0002_25.dat"),
    ("-l 20 --initial_t 128000 --power_t 1 --passes 8 --invariant --ngram 3 --skips 1 --holdout_off", "0001.dat.gz"),
    ("--initial_t 1 --adaptive --invariant -q Tf -q ff", "0002.dat.gz"),
]
FLAGS = (
    "",
    "--sgd",
    "--adaptive",
    "--normalized",
    "--invariant",
    "--adaptive --normalized",
    "--adaptive --invariant",
    "--normalized --invariant",
    "--adaptive --normalized --invariant",
    "--ftrl",
    "--pistol",
    "--coin",
)
