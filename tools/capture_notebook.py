"""Executes a notebook in place: `python tools/capture_notebook.py docs/notebook.ipynb`.

Requires a running cluster: `python local_runner.py cluster start`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
CELL_SECONDS = 120


def execute(path: Path, environment: Mapping[str, str] | None = None) -> nbformat.NotebookNode:
    """Executes a notebook in the root of the repository; returns it with outputs, without
    timestamps.

    Args:
      path: the path of the notebook.
      environment: additional variables of the kernel's environment.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell raised an error.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        # Messages of TensorFlow's C++ code go to the terminal instead of the notebook.
        extra_arguments=["--IPKernelApp.capture_fd_output=False"],
        resources={"metadata": {"path": str(ROOT)}},
    )
    client.execute(env={**os.environ, **(environment or {})})
    notebook.metadata.pop("language_info", None)  # The key contains the version of Python.
    return notebook


def main() -> None:
    """Executes the notebook, and writes it with the new outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    nbformat.write(execute(path), path)


if __name__ == "__main__":
    main()
