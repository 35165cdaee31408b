"""The kept notebooks are executed to their end, and contain no path, host or time."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import nbformat

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


def test_notebooks_are_kept_with_their_outputs() -> None:
    for path in NOTEBOOKS:
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


def test_notebooks_contain_no_path_host_or_time() -> None:
    for text in (path.read_text() for path in NOTEBOOKS):
        assert socket.gethostname() not in text
        assert not re.search(r"/(home|root|tmp|work|usr|opt)/|localhost:\d|[IWE]0000 ", text)
        assert not re.search(r"\b1\d{9}\b|\d{4}-\d\d-\d\dT\d\d", text)
