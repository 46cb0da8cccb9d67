"""The fault suite: real brokers, real processes, a seeded schedule of faults, and the same bits at its end."""
