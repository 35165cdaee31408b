"""Rows of a task that needs no label: those without one are read, and all of one class."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from components.example_gen.first_look import look_at_table
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_gen.sources.surveys import merge_surveys
from trainer_module.errors import DataError

WRITERS = {
    "csv": lambda rows, path: rows.to_csv(path, index=False),
    "jsonl": lambda rows, path: rows.to_json(path, orient="records", lines=True),
    "parquet": lambda rows, path: rows.to_parquet(path),
}


def settings_of(data_format: str, **changes: object) -> ExampleGenSettings:
    task = {"kind": "generation", **dict(changes.pop("task", {}))}
    given = {"format": data_format, "label": "label", "task": task, "may_lack_label": True}
    return ExampleGenSettings.model_validate({**given, **changes})


@pytest.mark.parametrize("data_format", WRITERS)
@pytest.mark.parametrize("label", [None, "b"])
def test_labels_are_read_where_there_are_some(
    tmp_path: Path, data_format: str, label: str | None
) -> None:
    rows = pd.DataFrame({"name": ["x", "y", "z"]} | ({"label": [label] * 3} if label else {}))
    file = tmp_path / f"rows.{data_format}"
    WRITERS[data_format](rows, file)
    source = make_source(settings_of(data_format))
    (files,) = source.plan([str(file)])
    kinds = merge_surveys([source.survey(files)], settings_of(data_format))
    (batch,) = source.read(files, kinds)
    assert batch.rows.to_pydict() == {
        "name": [[b"x"], [b"y"], [b"z"]],
        "label": [[(label or "none").encode()]] * 3,
    }
    # One class of all rows is no reason to refuse them.
    assert look_at_table(settings_of(data_format), [str(file)]) == {"name", "label"}


def test_a_label_that_is_needed_or_named_has_to_be_there(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name\nx\ny\n")
    for settings in (
        settings_of("csv", task={"conditional": True}, may_lack_label=False),
        settings_of("csv", label="digit", may_lack_label=False),
    ):
        with pytest.raises(DataError, match=f"There is no label column '{settings.label}'"):
            look_at_table(settings, [str(file)])
