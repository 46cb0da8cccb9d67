"""What Vowpal Wabbit 9.11 computes, in its own float32: for comparison to the last printed digit."""
