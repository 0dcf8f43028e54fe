"""Shared settings of the tests."""

import pytest
import torch


def pytest_collection_modifyitems(items):
    """Skip tests that need a GPU where there is none, and say so."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="this machine has no CUDA device"))
