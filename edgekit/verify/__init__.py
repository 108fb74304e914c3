"""Verify: float against the source, int8 against float, and the gates that turn measures into pass or fail."""
