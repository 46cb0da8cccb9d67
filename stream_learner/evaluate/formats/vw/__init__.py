"""Vowpal Wabbit's text format."""
