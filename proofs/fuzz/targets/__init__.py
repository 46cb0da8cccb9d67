"""The targets of fuzzing, by format."""
