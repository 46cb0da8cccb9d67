"""The weight table: rows by key, in memory or partly elsewhere."""
