"""The notebook as it is kept: executed to its end, quiet, and the same on every machine."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import nbformat

PATH = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def test_notebook_is_kept_with_its_outputs() -> None:
    notebook = nbformat.read(PATH, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {(output.output_type, output.get("name")) for output in outputs} == {
        ("stream", "stdout")
    }
    assert "of the held-out digits are right" in outputs[-1].text


def test_notebook_names_no_machine() -> None:
    text = PATH.read_text()
    assert socket.gethostname() not in text
    assert not re.search(r"/(home|root|tmp|work|usr|opt)/|localhost:\d|[IWE]0000 ", text)
