"""Aliases, pauses and pins: their records, and what they add up to."""
