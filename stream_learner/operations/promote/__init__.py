"""What operators say while a site runs: aliases, pauses, pins."""
