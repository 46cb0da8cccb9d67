"""Vowpal Wabbit beside this program: its command line, and its models in its own arithmetic."""
