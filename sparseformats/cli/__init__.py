"""The command line: ``python -m sparseformats COMMAND``.

``info`` tells what is installed, which devices there are, and every kernel: available, or each
reason why not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sparseformats.cli import info

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        Exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m sparseformats", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info.add_to(commands)
    chosen = parser.parse_args(arguments)
    status: int = chosen.run(chosen)
    return status
