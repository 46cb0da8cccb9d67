"""Published models and checkpoints: rows, pages, records, and the replica of a scorer."""
