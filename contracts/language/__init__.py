"""The contract language: what an op promises, parsed once into plain data."""
