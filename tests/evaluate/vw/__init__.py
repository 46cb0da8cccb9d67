"""Vowpal Wabbit command lines, ours against the installed package, side by side."""
