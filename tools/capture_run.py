"""Writes a picture of a command's output: `python tools/capture_run.py docs/run.svg`."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
WIDTH = 100


def main() -> int:
    """Runs the command with colours and without animations, and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("command", nargs="*", default=["make", "run"])
    arguments = parser.parse_args()
    environment = {**os.environ, "FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        arguments.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {' '.join(arguments.command)}\n{done.stdout.rstrip()}"))
    console.save_svg(str(arguments.picture), title="Scopeline")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
