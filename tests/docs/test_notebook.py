"""The notebooks as they are kept: executed to their end, quiet, and the same on every machine."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import nbformat
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_with_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    kinds = {(output.output_type, output.get("name")) for output in outputs}
    assert kinds <= {("stream", "stdout"), ("execute_result", None)}


def test_notebooks_end_with_their_answers() -> None:
    cluster, first = ((DOCS / name).read_text() for name in ("notebook.ipynb", "first_model.ipynb"))
    assert "of the held-out digits are right" in cluster
    cells = [c for c in nbformat.reads(first, as_version=4).cells if c.cell_type == "code"]
    assert len(cells) == 10
    assert cells[-2].outputs[-1].data["text/plain"] == "'Adelie'"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_names_no_machine_and_no_time(path: Path) -> None:
    text = path.read_text()
    assert socket.gethostname() not in text
    assert not re.search(r"/(home|root|tmp|work|usr|opt)/|localhost:\d|[IWE]0000 ", text)
    assert not re.search(r"\b1\d{9}\b|\d{4}-\d\d-\d\dT\d\d", text)
