"""Every Python block of the documentation runs, and every docstring example holds."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tensorpact
from tensorpact import backends, contracts, ops

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(page, number, block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()), start=1)
]
COMMENT = re.compile(r"print\(.*\)\s+# (.*)$")


def test_documentation__has_examples():
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS)
def test_documentation__every_python_block_runs(page, number, block, capsys):
    module = {"__name__": f"example_{number}"}
    exec(compile(block, f"{page.name} block {number}", "exec"), module)
    printed = capsys.readouterr().out
    for line in block.splitlines():
        shown = COMMENT.search(line)
        if shown and not shown[1].startswith(("the ", "a ")):
            for part in filter(None, (piece.strip() for piece in shown[1].split("..."))):
                assert part in printed, line


def _modules():
    yield tensorpact
    for package in (backends, contracts, ops):
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


@pytest.mark.parametrize("module", list(_modules()), ids=lambda module: module.__name__)
def test_documentation__docstring_examples_hold(module):
    assert doctest.testmod(module).failed == 0
