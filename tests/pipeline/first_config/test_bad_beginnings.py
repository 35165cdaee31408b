"""Beginnings that go wrong end in one sentence with the line to write, in `init` and in `run`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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
    houses,
    parquet,
    picture,
    text,
    written,
    written_classes,
)
from trainer_module.errors import ScopelineError


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
NO_HEADER = "not like a header: list its {} columns in the config, such as data.csv: {{header: ["
ONE_CLASS = {f"pets/cat/{n}.png": picture(n) for n in range(12)}
IS_IDENTIFIER = "has 240 different values in 240 rows"
BAD = [
    Bad(
        "wrong path",
        lambda folder: written(folder, {"houses.csv": HOUSES}, "house.csv"),
        csv("price", "regression"),
        "`houses.csv`",
    ),
    Bad(
        "a number as identifier for a label",
        lambda folder: written(folder, {"houses.csv": NUMBERED}),
        csv("id", "regression"),
        f"Label 'id' {IS_IDENTIFIER}",
    ),
    Bad(
        "spellings of two classes",
        lambda folder: written(
            folder, {"a.csv": text([{"x": n, "y": ["yes", "No", "no"][n % 3]} for n in range(99)])}
        ),
        csv("y", "binary"),
        "classes 'No' and 'no' of label 'y'",
        mended={"label": "y"},
    ),
    Bad(
        "all rows of one class",
        lambda folder: written(folder, {"a.csv": text([r | {"town": "Ulm"} for r in houses()])}),
        csv("town", "multiclass"),
        "Label 'town' is 'Ulm' in every row",
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
        "another delimiter",
        lambda folder: written(folder, {"a.csv": text(houses(), "^")}),
        csv("price", "regression"),
        'data.csv: {delimiter: "^"}',
        mended={"csv": {"delimiter": "^"}},
    ),
    Bad(
        "pictures of one class",
        lambda folder: written(folder, ONE_CLASS, "pets"),
        images(),
        "Label 'label' is 'cat' in every row",
    ),
    Bad(
        "three rows",
        lambda folder: written(folder, {"a.csv": text(houses()[:3])}),
        csv("price", "regression"),
        "only 3 rows",
    ),
    Bad(
        "Parquet named CSV",
        lambda folder: written(folder, {"a.csv": parquet({"y": [0, 1] * 20, "x": [*range(40)]})}),
        csv("y", "binary"),
        "data.format: parquet",
        mended={"format": "parquet"},
    ),
    Bad(
        "a folder without data",
        lambda folder: written(folder, {"a/.hidden": ""}, "a"),
        csv("price", "regression"),
        "No file matches",
        init="a contains no data",
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
def test_unusable_data_is_refused_by_init_and_run(
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
    assert "house.csv: " in str(done.exception)
    done = CliRunner().invoke(local_runner.app, ["init", "houses.csv", "--force"])
    assert "unchanged: README.md" in done.output
    assert Path("README.md").read_text() == "mine"
    assert "label: price" in Path("config.yaml").read_text()


def test_paths_that_lead_to_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"data/houses.csv": HOUSES, **written_classes("pets")})
    written(
        tmp_path,
        {"pets.csv": "path,kind\n" + "".join(f"{n},{n[5:8]}\n" for n in written_classes("pets"))},
    )
    Path("link.csv").symlink_to("gone.csv")
    os.mkfifo("pipe.csv")
    assert "link.csv links to gone.csv" in told_by_init("link.csv")
    assert "pipe.csv is a pipe or a device" in told_by_init("pipe.csv")
    assert "in 'data', which contains houses.csv" in told_by_init("data/*.parquet")
    assert "'path' contains pictures" in told_by_init("pets.csv", "--label", "path")


@pytest.mark.parametrize("broken", [False, True])
def test_beginning_of_large_file_is_read(
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
            "Row 2 of houses.csv",
            tmp_path,
        )
        return
    done = CliRunner().invoke(local_runner.app, ["init", "houses.csv"], catch_exceptions=False)
    count = int(done.output.split("the first ")[1].split(" rows")[0])
    assert 40 < count < 120
    assert yaml.safe_load(Path("config.yaml").read_text())["data"]["label"] == "price"
