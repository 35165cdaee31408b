"""Beginnings that go wrong end in one sentence with the line to write, in `init` and in `run`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import local_runner
from pipeline.config.loading import load_config
from pipeline.first_config import beginnings
from pipeline.layout import Layout
from pipeline.run_context import resolve_run
from pipeline.runs.run import check_new_data
from tests.support.some_data import (
    customers,
    flowers,
    houses,
    parquet,
    picture,
    reviews,
    sales,
    text,
    written,
    written_classes,
)
from trainer_module.errors import ScopelineError

NOISE = Random(0).randbytes(5_000)  # noqa: S311 - no secret


@dataclass(frozen=True)
class Bad:
    """A beginning that goes wrong, and words of the sentences."""

    id: str
    write: Callable[[Path], str]
    config: dict[str, Any]
    """The keys of `data`, except the path, and the task, of somebody who writes YAML."""
    run: str
    """Words of the sentence that a run ends with."""
    init: str = ""
    """Words of the sentence that `init` ends with, if they differ from those of the run."""
    mended: dict[str, Any] | None = None
    """Keys of `data` that `init` writes, where it sees what is meant."""


def csv(label: str, task: str) -> dict[str, Any]:
    """What somebody writes for a CSV."""
    return {"format": "csv", "label": label, "task": task}


def images(**keys: Any) -> dict[str, Any]:
    """What somebody writes for pictures."""
    return {"format": "images", "task": "multiclass", **keys}


HOUSES = text(houses())
NUMBERED = text([r | {"id": n + 1} for n, r in enumerate(houses())])
WORDS = [{"a": row["species"], "b": "xyz"[n % 3]} for n, row in enumerate(flowers())]
ALL_TEXT = text(WORDS, header=False)
NO_HEADER = "not like a header: list its {} columns in the config, such as data.csv: {{header: ["
ONE_CLASS = {f"pets/cat/{n}.png": picture(n) for n in range(12)}
LINES = "".join(json.dumps(row) + "\n" for row in reviews())
IS_IDENTIFIER = "has 240 different values in 240 rows, as an identifier has: name another column by"
BAD = [
    Bad(
        "wrong path",
        lambda folder: written(folder, {"houses.csv": HOUSES}, "house.csv"),
        csv("price", "regression"),
        "there is no such file or folder; did you mean `houses.csv`?",
    ),
    Bad(
        "a number as identifier for a label",
        lambda folder: written(folder, {"houses.csv": NUMBERED}),
        csv("id", "regression"),
        f"Label 'id' {IS_IDENTIFIER}",
    ),
    Bad(
        "a code as identifier for a label",
        lambda folder: written(folder, {"a.csv": text(customers())}),
        csv("customer_id", "multiclass"),
        f"Label 'customer_id' {IS_IDENTIFIER}",
    ),
    Bad(
        "an identifier with gaps",
        lambda folder: written(folder, {"a.csv": HOUSES}),
        csv("id", "regression"),
        f"Label 'id' {IS_IDENTIFIER}",
    ),
    Bad(
        "a delimiter at the end of each row",
        lambda folder: written(folder, {"a.csv": HOUSES.replace("\n", ",\n")}),
        csv("price", "regression"),
        "has no name in row 1 of ",
    ),
    Bad(
        "a delimiter at the end of each row below the header",
        lambda folder: written(
            folder, {"a.csv": HOUSES.replace("\n", ",\n").replace(",\n", "\n", 1)}
        ),
        csv("price", "regression"),
        "if all rows end with ',', remove it by `sed -E '2,$s/,(\\r?)$/\\1/' ",
    ),
    Bad(
        "tabs, spaces and quotation marks between cells",
        lambda folder: written(
            folder,
            {"a.data": "".join(f'{n}.5   {n % 7}\t"a car {n}"  {n % 3}\n' for n in range(99))},
        ),
        csv("x", "regression"),
        "separates its columns by several spaces or tabs: write commas, for example by `python -c",
    ),
    Bad(
        "spellings of two classes",
        lambda folder: written(
            folder, {"a.csv": text([{"x": n, "y": ["yes", "No", "no"][n % 3]} for n in range(99)])}
        ),
        csv("y", "binary"),
        "(classes 'No' and 'no' of label 'y' differ only in case or spaces: if they are the same",
        mended={"label": "y"},
    ),
    Bad(
        "all rows of one class",
        lambda folder: written(folder, {"a.csv": text([r | {"town": "Ulm"} for r in houses()])}),
        csv("town", "multiclass"),
        "Label 'town' is 'Ulm' in every row: a classifier needs two classes or more; check",
    ),
    Bad(
        "text as label of a regression",
        lambda folder: written(folder, {"a.csv": text(customers())}),
        csv("plan", "regression"),
        "task: regression needs a finite number in every row. Correct the value, leave the cell"
        " empty if the value is missing, or choose task: binary or multiclass.",
        mended={"label": "plan"},
    ),
    Bad(
        "no header",
        lambda folder: written(folder, {"a.csv": text(houses(), header=False)}),
        csv("price", "regression"),
        NO_HEADER.format(5),
    ),
    Bad(
        "no header and no numbers",
        lambda folder: written(
            folder,
            {
                "a.csv": text(
                    [{"a": r["species"], "b": "xyz"[n % 3]} for n, r in enumerate(flowers())],
                    header=False,
                )
            },
        ),
        csv("species", "multiclass"),
        NO_HEADER.format(2),
    ),
    Bad(
        "a title above the names",
        lambda folder: written(folder, {"a.csv": "Houses\n\n" + text(houses(), ";")}),
        csv("price", "regression"),
        "contains only 'Houses', but line 3 has 5 cells: remove what precedes the names of the"
        " columns, for example by `tail -n +3 ",
    ),
    Bad(
        "runs of spaces between cells",
        lambda folder: written(folder, {"a.txt": text(flowers(), " ").replace(" ", "   ")}),
        csv("species", "multiclass"),
        "a.txt separates its columns by several spaces or tabs: write commas, for example by `sed",
    ),
    Bad(
        "a column named label of one class",
        lambda folder: written(folder, {"a.csv": text([r | {"label": 1} for r in houses()])}),
        {"format": "csv", "task": "binary"},
        "data.label",
        init="Label 'label' is 1 in every row: a classifier needs two classes or more; check --l",
    ),
    Bad(
        "another delimiter",
        lambda folder: written(folder, {"a.csv": text(houses(), "^")}),
        csv("price", "regression"),
        'if it separates the columns, write data.csv: {delimiter: "^"}',
        mended={"csv": {"delimiter": "^"}},
    ),
    Bad(
        "pictures one level too high",
        lambda folder: written(folder, written_classes("all/pets"), "all"),
        images(),
        "but there are pictures in folders below: write data.path: ",
        mended={"path": "all/pets"},
    ),
    Bad(
        "pictures one level too low",
        lambda folder: written(folder, written_classes("pets"), "pets/cat"),
        images(),
        "if its subfolders are the classes",
    ),
    Bad(
        "pictures of one class",
        lambda folder: written(folder, ONE_CLASS, "pets"),
        images(),
        "Label 'label' is 'cat' in every row",
    ),
    Bad(
        "a date as label",
        lambda folder: written(folder, {"a.csv": text(sales())}),
        csv("date", "multiclass"),
        "Label 'date' has 240 dates, such as '2024-01-01', which are no classes: name another",
    ),
    Bad(
        "a date as label of a regression",
        lambda folder: written(folder, {"a.csv": text(sales())}),
        csv("date", "regression"),
        "It is a date: name another column by data.label",
        init="Label 'date' has 240 dates",
    ),
    Bad(
        "three rows",
        lambda folder: written(folder, {"a.csv": text(houses()[:3])}),
        csv("price", "regression"),
        "The data has only 3 rows, too few to train and to evaluate a model: add rows",
    ),
    Bad(
        "a workbook named CSV",
        lambda folder: written(folder, {"a.csv": b"PK\x03\x04" + bytes(200)}),
        csv("price", "regression"),
        "a.csv is a zip archive, or an Excel workbook",
    ),
    Bad(
        "Parquet named CSV",
        lambda folder: written(folder, {"a.csv": parquet({"y": [0, 1] * 20, "x": [*range(40)]})}),
        csv("y", "binary"),
        "a.csv is a Parquet file, not CSV: write data.format: parquet",
        mended={"format": "parquet"},
    ),
    Bad(
        "CSV named Parquet",
        lambda folder: written(folder, {"a.parquet": HOUSES}),
        {"format": "parquet", "label": "price", "task": "regression"},
        "it is text, so write data.format: csv or jsonl",
        mended={"format": "csv"},
    ),
    Bad(
        "JSON lines named CSV",
        lambda folder: written(folder, {"a.csv": LINES}),
        csv("stars", "regression"),
        "a.csv is JSON lines, not CSV: write data.format: jsonl",
        mended={"format": "jsonl"},
    ),
    Bad(
        "a JSON array",
        lambda folder: written(folder, {"a.json": json.dumps(reviews())}),
        {"format": "jsonl", "label": "stars", "task": "regression"},
        "write one object per line by `jq -c '.[]' ",
    ),
    Bad(
        "a folder without data",
        lambda folder: written(folder, {"a/.hidden": ""}, "a"),
        csv("price", "regression"),
        "No file matches",
        init="a contains no data: expected files such as rows.csv, or a subfolder of pictures",
    ),
    Bad(
        "a binary file",
        lambda folder: written(folder, {"a.csv": NOISE}),
        csv("price", "regression"),
        "a.csv is a binary file of an unknown format",
    ),
    Bad(
        "a label that is not there",
        lambda folder: written(folder, {"a.csv": HOUSES}),
        csv("prize", "regression"),
        "There is no label column 'prize' in",
    ),
]


def told_by_init(*arguments: str) -> str:
    """The sentence with which `init` ends."""
    done = CliRunner().invoke(local_runner.app, ["init", *arguments])
    assert isinstance(done.exception, ScopelineError), done.output
    assert not Path("config.yaml").exists()
    return str(done.exception)


def told_by_run(path: str, config: dict[str, Any]) -> str:
    """The sentence with which the checks of a run end."""
    config = {"name": "bad", "task": config["task"], "data": {**config, "path": path}}
    del config["data"]["task"]
    Path("bad.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ScopelineError) as caught:
        check(Path("bad.yaml"))
    return str(caught.value)


def check(file: Path) -> None:
    """Checks a config and its data as a run does."""
    config = load_config(file)
    check_new_data(resolve_run(config, Layout.of(config.name, config.push, Path("output"))))


def check_sentence(sentence: str, words: str, folder: Path) -> None:
    """Checks that a sentence has the words, and is one."""
    assert words in sentence
    sentence = sentence.removeprefix("bad.yaml: 1 problem\n")
    assert sentence.isprintable()
    assert len(sentence) < 500 + 3 * len(str(folder))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.id)
def test_bad_beginning_ends_in_a_sentence(
    bad: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = bad.write(tmp_path)
    check_sentence(told_by_run(path, bad.config), bad.run, tmp_path)
    label = ["--label", bad.config["label"]] if "label" in bad.config else []
    if bad.mended is None:
        check_sentence(told_by_init(path, *label), bad.init or bad.run, tmp_path)
        return
    done = CliRunner().invoke(local_runner.app, ["init", path, *label], catch_exceptions=False)
    assert done.exit_code == 0
    data = yaml.safe_load(Path("config.yaml").read_text())["data"]
    assert {key: data[key] for key in bad.mended} == bad.mended


def test_config_that_exists_is_replaced_only_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"houses.csv": HOUSES, "config.yaml": "mine", "README.md": "mine"})
    done = CliRunner().invoke(local_runner.app, ["init", "houses.csv"])
    assert "config.yaml exists: add --force" in str(done.exception)
    assert Path("config.yaml").read_text() == "mine"
    done = CliRunner().invoke(local_runner.app, ["init", "house.csv"])
    assert "house.csv: there is no such file or folder; did you mean" in str(done.exception)
    done = CliRunner().invoke(local_runner.app, ["init", "houses.csv", "--force"])
    assert "unchanged: README.md" in done.output
    assert Path("README.md").read_text() == "mine"
    assert "label: price" in Path("config.yaml").read_text()


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"houses.csv": HOUSES})
    # Nobody may write here, not even root.
    assert "cannot be written" in told_by_init("houses.csv", "--folder", "/proc/closed")


def test_paths_that_lead_to_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"data/houses.csv": HOUSES, **written_classes("pets")})
    written(
        tmp_path,
        {"pets.csv": "path,kind\n" + "".join(f"{n},{n[5:8]}\n" for n in written_classes("pets"))},
    )
    Path("link.csv").symlink_to("gone.csv")
    os.mkfifo("pipe.csv")
    assert "link.csv links to gone.csv, which does not exist" in told_by_init("link.csv")
    assert "pipe.csv is a pipe or a device" in told_by_init("pipe.csv")
    assert "in 'data', which contains houses.csv" in told_by_init("data/*.parquet")
    assert "'path' contains pictures" in told_by_init("pets.csv", "--label", "path")


def test_folder_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"houses.csv": HOUSES})
    sentence = told_by_init("houses.csv", "--folder", "houses.csv/below")
    assert "houses.csv is a file, not a folder: name a folder by --folder" in sentence


def test_of_large_files_of_excel_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(beginnings, "MAX_BYTES", 4_000)
    lines = text(houses(), "\t").replace("id\t", "[id]\t", 1)
    written(tmp_path, {"houses.txt": lines.encode("utf-16")})
    done = CliRunner().invoke(local_runner.app, ["init", "houses.txt"], catch_exceptions=False)
    assert int(done.output.split("the first ")[1].split(" rows")[0]) < 100
    assert yaml.safe_load(Path("config.yaml").read_text())["data"]["label"] == "price"


@pytest.mark.parametrize("broken", [False, True])
def test_of_large_files_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(beginnings, "MAX_BYTES", 4_000)
    rows = [row | {"note": f'"{n}",\nof two lines'} for n, row in enumerate(houses())]
    lines = text(rows)
    if broken:
        lines = lines.replace("\n", "\ntoo,few\n", 1)
    written(tmp_path, {"houses.csv": lines})
    if broken:
        check_sentence(
            told_by_init("houses.csv"),
            "Row 2 of houses.csv has 2 columns, but the header has 6",
            tmp_path,
        )
        return
    done = CliRunner().invoke(local_runner.app, ["init", "houses.csv"], catch_exceptions=False)
    count = int(done.output.split("the first ")[1].split(" rows")[0])
    assert 40 < count < 120
    assert yaml.safe_load(Path("config.yaml").read_text())["data"]["label"] == "price"
