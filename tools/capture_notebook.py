"""Executes a notebook in place: `python tools/capture_notebook.py docs/first_model.ipynb`.

`docs/notebook.ipynb` requires a running cluster: `python local_runner.py cluster start`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from pipeline.own_modules import ROOT

CELL_SECONDS = 600
_PROGRAMS = f"{Path(sys.executable).parent}{os.sep}"
"""The folder of the environment's programs."""
CLUSTER = ROOT / "output" / "cluster" / "cluster.json"
"""The cluster of `cluster start` in the root of the repository."""
_RUN_ID = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+")
_VERSION = re.compile(r"\b1\d{9}\b")
"""The number of a version, which is the time of its push."""


def execute(path: Path, environment: Mapping[str, str] | None = None) -> nbformat.NotebookNode:
    """Executes a notebook in a temporary folder; returns it with outputs.

    In the outputs, ids of runs and numbers of versions, which are times, are replaced by words.

    Args:
      environment: additional variables of the kernel's environment.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell raised an error.
    """
    notebook = nbformat.read(path, as_version=4)
    variables = {"PYTHONPATH": str(ROOT), "SCOPELINE_CLUSTER": str(CLUSTER)}
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            # Messages of TensorFlow's C++ code go to the terminal instead of the notebook.
            extra_arguments=["--IPKernelApp.capture_fd_output=False"],
            resources={"metadata": {"path": folder}},
        )
        client.execute(env={**os.environ, **variables, **(environment or {})})
    for cell in notebook.cells:
        _without_particulars(cell.get("outputs"))
    notebook.metadata.pop("language_info", None)  # The key contains the version of Python.
    return notebook


def _without_particulars(value: Any) -> Any:
    """Returns a value of an output without times and the path of the environment.

    Lists and dicts are changed in place.
    """
    if isinstance(value, str):
        value = value.replace(_PROGRAMS, "")
        return _VERSION.sub("VERSION", _RUN_ID.sub("RUN", value))
    if isinstance(value, list):
        value[:] = [_without_particulars(item) for item in value]
    if isinstance(value, dict):
        for name, item in value.items():
            value[name] = _without_particulars(item)
    return value


def main() -> None:
    """Executes the notebook, and writes it with the new outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    nbformat.write(execute(path), path)


if __name__ == "__main__":
    main()
