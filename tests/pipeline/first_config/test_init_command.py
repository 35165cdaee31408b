"""The command `init` at a terminal, in other folders, and from a run."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import local_runner
from pipeline.config.loading import load_config
from pipeline.first_config.folder import place
from pipeline.first_config.proposal import Proposal
from pipeline.records.details import RunDetails
from pipeline.records.summary import ColumnSummary, RunSummary
from tests.support.some_data import KINDS, customers, houses, text, written

ROOT = Path(__file__).parents[3]
LAST_WORDS = """
import sys
import local_runner
sys.argv = ["/bin/scopeline", "init", "data/customers.csv"]
try:
    local_runner.main()
finally:
    print("heavy:", {"tensorflow", "tfx", "apache_beam"} & set(sys.modules), flush=True)
"""


@pytest.mark.slow
def test_label_is_chosen_on_a_terminal_without_tensorflow(tmp_path: Path) -> None:
    written(tmp_path, {"data/customers.csv": text(customers())})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LAST_WORDS.replace("local_runner.main()", "local_runner.app()")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, b"7\n0\nplan\n")
    shown = b""
    try:
        while block := os.read(ours, 4096):
            shown += block
    except OSError:  # Linux ends a terminal so, when nobody writes to it any longer.
        pass
    os.close(ours)
    output = shown.decode().replace("\r\n", "\n")
    assert process.wait() == 0, output
    assert "  1  churned\n" in output
    assert "next: scopeline run config.yaml\n" in output
    assert "heavy: set()" in output
    found = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (found["data"]["label"], found["task"]) == ("plan", "multiclass")
    assert found["data"]["path"] == "data/customers.csv"


def test_folder_of_the_config_may_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCOPELINE_PROGRAM", "python local_runner.py")
    written(tmp_path, {"houses.csv": text(houses())})
    done = CliRunner().invoke(local_runner.app, ["init", "houses.csv", "--folder", "a b"])
    assert f"next: cd 'a b' && python {tmp_path}/local_runner.py run config.yaml" in done.output
    monkeypatch.chdir("a b")
    assert load_config(Path("config.yaml")).data.path == str(tmp_path / "houses.csv")
    assert {path.name for path in Path().iterdir()} == {
        "config.yaml",
        "config.schema.json",
        ".gitignore",
        "README.md",
    }
    assert len(Path("README.md").read_text().splitlines()) == 7


@pytest.mark.parametrize("kind", ["names of columns that YAML", "classes in the names of pictures"])
def test_init_lists_the_written_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (write,) = (known.write for known in KINDS if known.id.startswith(kind))
    done = CliRunner().invoke(local_runner.app, ["init", write(tmp_path)], catch_exceptions=False)
    assert done.output.replace("\n", "").isprintable()
    (line,) = (line for line in done.output.splitlines() if line.startswith("written: "))
    files = line.removeprefix("written: ").split(", ")
    assert "config.yaml" in files
    assert all(Path(file).is_file() for file in files)
    assert ("pictures.csv" in files) == kind.startswith("classes")


@pytest.mark.parametrize(
    ("epochs", "steps", "train"),
    [
        (4, 12, {"epochs": 4, "steps_per_epoch": 3, "batch_size": 32}),
    ],
)
def test_config_of_a_run_makes_its_choices_explicit(
    epochs: int,
    steps: int,
    train: dict[str, int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"houses.csv": text(houses())})
    folder = tmp_path / "output" / "houses" / "runs" / "2026-01-05T08-00-00"
    folder.mkdir(parents=True)
    config = {
        "name": "houses",
        "data": {"format": "csv", "path": "houses.csv", "label": "price"},
        "task": {"kind": "regression"},
        "features": {"rooms": {"type": "categorical"}},
        "tune": {"auto": True},
        "notify": {"webhook": {"url": "(not shown)"}},
    }
    columns = {
        "id": ColumnSummary(settings={"type": "ignore"}, reason="counts the rows"),
        "rooms": ColumnSummary(settings={"type": "numeric"}, reason="numbers"),
    }
    training = {"model": "mlp", "epochs": epochs, "steps": steps}
    RunSummary(
        run_id=folder.name,
        pipeline="houses",
        started="2026-01-05T08:00:00",
        strategy="default",
        columns=columns,
        tuning={"values": {"model.dropout": 0.3}},
        training={**training, "global_batch_size": 32, "replicas": 1},
        details=RunDetails(config=config),
    ).write(folder / "summary.json")
    done = CliRunner().invoke(
        local_runner.app, ["init", "--from-run", "last"], catch_exceptions=False
    )
    assert "note: notify.webhook may be a secret and is left out" in done.output
    found = yaml.safe_load(Path("config.yaml").read_text())
    assert found["features"] == {"rooms": {"type": "categorical"}, "id": {"type": "ignore"}}
    assert found["model"] == {"dropout": 0.3, "kind": "mlp"}
    assert found.get("train") == train
    assert found["evaluate"]["metrics"][:2] == ["mse", "mae"]
    assert found["task"] == "regression"
    assert "tune" not in found
    load_config(Path("config.yaml"))


def test_paths_are_valid_in_the_folder_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.safetensors").touch()
    labels = {"path": "labels/*.csv", "key": "id"}
    config: dict[str, Any] = {
        "data": {"format": "csv", "path": "new/rows.csv", "labels": labels},
        "features": {"photo": {"type": "image", "folder": "photos"}, "rooms": {"type": "numeric"}},
        "schema": "schema.pbtxt",
        "push": {"directory": "gs://bucket/models"},
        "model": {"kind": "bert", "weights": "own.safetensors"},
    }
    placed: dict[str, Any] = dict(place(Proposal(config), Path("new")).config)
    assert placed["data"]["path"] == "rows.csv"
    assert placed["data"]["labels"]["path"] == f"{tmp_path}/labels/*.csv"
    assert placed["features"]["photo"]["folder"] == f"{tmp_path}/photos"
    assert placed["schema"] == f"{tmp_path}/schema.pbtxt"
    assert placed["push"] == config["push"]
    assert placed["model"]["weights"] == f"{tmp_path}/own.safetensors"
    assert config["schema"] == "schema.pbtxt"
