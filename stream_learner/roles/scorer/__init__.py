"""The scorer: from published models to predictions."""
