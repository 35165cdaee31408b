"""The notebook of the docs that goes from a CSV to a served answer."""

from __future__ import annotations

import nbformat
import pytest

from tests.support.project import ROOT
from tools.capture_notebook import execute

pytestmark = pytest.mark.slow

PATH = ROOT / "docs" / "first_model.ipynb"


def test_notebook_ends_with_a_served_answer() -> None:
    cells = [cell for cell in execute(PATH).cells if cell.cell_type == "code"]
    kept = [cell for cell in nbformat.read(PATH, as_version=4).cells if cell.cell_type == "code"]
    for index in (0, 1, 2, 3, 8):  # The others have the figures of the run.
        assert cells[index].outputs == kept[index].outputs, cells[index].source
    assert "Chinstrap" in cells[7].outputs[0].data["text/plain"]
    assert "pushed to output/penguins/serving/penguins/VERSION" in cells[4].outputs[0].text
