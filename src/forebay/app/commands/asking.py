"""The question before what can't be taken back: asked on a terminal, answered by `--yes` elsewhere."""

import argparse
import sys

from forebay.app.commands.output import warn
from forebay.model import Rejected

__all__ = ["agreed", "declare_asking"]


def declare_asking(parser: argparse.ArgumentParser, *, dry_run: bool = True) -> None:
    """The arguments of a command that does away with something."""
    parser.add_argument("--yes", action="store_true", help="don't ask")
    if dry_run:
        parser.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")


def agreed(arguments: argparse.Namespace, what: str) -> bool:
    """Whether to go ahead with `what`. Without a terminal to ask on, `--yes` is needed."""
    if arguments.yes:
        return True
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Rejected(f"this would {what}", hint="add --yes to do it")
    sys.stderr.write(f"{what[0].upper()}{what[1:]}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    warn("nothing was changed")
    return False
