"""What an operator runs: audit, backfill, comparison, promotion, inspection, rights, topics."""
