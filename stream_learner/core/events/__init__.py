"""From the bytes of an event to its columns and features."""
