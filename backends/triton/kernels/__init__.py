"""The kernels themselves. Importing a module of this package imports Triton; nothing else does."""
