"""What several roles share."""
