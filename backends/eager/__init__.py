"""Readable PyTorch references, one file per op family; every other backend is held to them."""
