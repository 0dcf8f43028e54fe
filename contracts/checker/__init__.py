"""Enforcement: the generated guard, the ordered diagnosis, and the errors they raise."""
