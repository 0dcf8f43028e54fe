"""The command line: `tensorpact COMMAND` or `python -m tensorpact COMMAND`.

Exit codes: 0 all is well, 1 something was found wrong, 2 the command line is wrong; an interrupted
command ends with 130, as shells do.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence

from tensorpact.commands import UsageError, demo, doctor, own_version, show

COMMANDS = {"demo": demo, "show": show, "doctor": doctor}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"tensorpact: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough. Python flushes standard output once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(argv: list[str]) -> int:
    command = next((word for word in argv if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"Did you mean `{close[0]}`?" if close else f"Commands: {', '.join(COMMANDS)}."
        raise UsageError(f"there is no command {command!r}. {hint}")
    try:
        options = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed the help, the version or what is wrong
        return end.code if isinstance(end.code, int) else 2
    code: int = COMMANDS[options.command].run(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensorpact", description="Tensor contracts for GPU ops.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"tensorpact {own_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name, help=module.HELP, description=_sentence(module.HELP), allow_abbrev=False
        )
        module.add_arguments(command)
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    sys.exit(main())
