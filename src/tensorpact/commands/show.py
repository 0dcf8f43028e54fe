"""`tensorpact show`: the contract of an op as a table, or its generated guard."""

from __future__ import annotations

import argparse

from tensorpact.commands.finding import contract_of, find_op, own_ops

HELP = "print the contract of an op, or list the ops"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "op",
        nargs="?",
        metavar="OP",
        help="an op of this project, or package.module:attribute (default: list the ops)",
    )
    parser.add_argument("--source", action="store_true", help="print the generated guard")


def run(options: argparse.Namespace) -> int:
    """Print what was asked for."""
    if options.op is None:
        names = own_ops()
        width = max(len(name) for name in names)
        for name, op in names.items():
            print(f"{name:<{width}}  {_first_line(op.__doc__)}")
        return 0
    contract = contract_of(find_op(options.op))
    print(contract.source().rstrip() if options.source else str(contract).rstrip())
    return 0


def _first_line(documentation: str | None) -> str:
    lines = (documentation or "").strip().splitlines()
    return lines[0] if lines else ""
