"""Lists, and dates of which one is broken, that nobody has declared: what a run says of them.

Models of columns of these types are trained and pushed in test_tasks_e2e.py.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.project import Project, plain

pytestmark = pytest.mark.slow

CONFIG = {
    "name": "visits",
    "data": {"format": "parquet", "path": "visits.parquet", "label": "returned"},
    "task": "binary",
}


@pytest.fixture(scope="module")
def screen(project: Project) -> str:
    """What a run showed that reads and checks the data."""
    random = np.random.default_rng(1)
    lengths = random.integers(1, 5, 400)
    days = [f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}" for i in range(399)]
    table = {
        "tags": [[f"t{i % 3}" for i in range(n)] for n in lengths],
        "wards": [list(range(n)) for n in lengths],
        "pulses": [random.normal(size=n).astype(np.float32) for n in lengths],
        "day": [*days, "unknown"],
        "returned": (lengths > 2).astype(int),
    }
    pq.write_table(pa.table(table), project.folder / "visits.parquet")
    (project.folder / "visits.yaml").write_text(json.dumps(CONFIG))
    done = project.scopeline("run", "--config", "visits.yaml", "--validate-only")
    assert done.returncode == 0, done.stdout + done.stderr
    return plain(done.stdout)


def test_lists_are_chosen_to_be_categories_or_sequences(project: Project, screen: str) -> None:
    del screen
    columns = {n: c["settings"] for n, c in project.summary("visits")["columns"].items()}
    many = {"type": "categorical", "many": True, "max_values": 4}
    assert {name: columns[name] for name in ("tags", "wards", "pulses")} == {
        "tags": many,
        "wards": many,
        "pulses": {"type": "sequence", "length": 4},
    }


def test_a_broken_date_is_said(project: Project, screen: str) -> None:
    what = (
        "1 of 400 values do not have the format %Y-%m-%d and count as missing dates, the"
        " first is 'unknown' in row"
    )
    (note,) = project.summary("visits")["notes"]
    assert note.startswith("column 'day': dates such as '2024-")
    assert what in note
    assert what in screen.replace("\n", " ")
