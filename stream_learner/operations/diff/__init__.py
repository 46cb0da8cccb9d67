"""Where two models part, and at which records."""
