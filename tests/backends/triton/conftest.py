"""The op tests of this folder run twice: on a GPU, and on the CPU by Triton's interpreter.

The interpreter has to be asked for before Triton is imported, so `test_interpreter.py` runs the
others in a process of its own; without either, they skip.
"""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for `triton_calls`


@pytest.fixture
def device() -> torch.device:
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    pytest.skip("no CUDA device; test_interpreter.py runs this on the CPU")
