"""The training log: its records, and the rules by which they are read (R) and written (W)."""
