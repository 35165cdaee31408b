"""Tables of commands whose cells are sentences."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

NO_TERMINAL_WIDTH = 200
"""Characters in a line where the output is no terminal."""


def wide_console() -> Console:
    """As wide as the terminal; wide enough for a sentence where there is none."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else NO_TERMINAL_WIDTH)


def plain_table(*columns: str) -> Table:
    """A table without lines, whose cells are folded."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
