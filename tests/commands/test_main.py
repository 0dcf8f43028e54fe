"""The command line as a whole: help, version, exit codes, pipes and interrupts."""

import subprocess
import sys

import pytest

from tensorpact.__main__ import COMMANDS, main
from tensorpact.commands import own_version

TENSORPACT = [sys.executable, "-m", "tensorpact"]

# Runs the command line without the package's front door, which imports torch for its own sake.
HELP_ALONE = """
import importlib.util, sys, types
package = types.ModuleType("tensorpact")
package.__path__ = list(importlib.util.find_spec("tensorpact").submodule_search_locations)
sys.modules["tensorpact"] = package
from tensorpact.__main__ import main
code = main(["--help"]) or main(["demo", "--help"])
sys.exit(code or int("torch" in sys.modules))
"""


def test_main__help_has_one_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, module in COMMANDS.items():
        assert [line for line in lines if line.split() == [name, *module.HELP.split()]]


def test_main__help_does_not_import_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP_ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_main__version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tensorpact {own_version()}\n"


def test_main__no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


def test_main__unknown_command_hints_at_the_near_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["docter"]) == 2
    assert capsys.readouterr().err == (
        "tensorpact: there is no command 'docter'. Did you mean `doctor`?\n"
    )


def test_main__unknown_command_without_a_near_name_lists_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["xyz"]) == 2
    assert capsys.readouterr().err.endswith(f"Commands: {', '.join(COMMANDS)}.\n")


def test_main__unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quik"]) == 2
    assert "--quik" in capsys.readouterr().err


def test_main__interrupt_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["show"], "run", interrupted)
    assert main(["show"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_main__reader_that_closes_early_is_no_error() -> None:
    with subprocess.Popen(
        [*TENSORPACT, "show"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait() == 1
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
