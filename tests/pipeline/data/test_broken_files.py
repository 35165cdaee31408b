"""Every broken file ends a run in a sentence that names the place, before TFX is imported."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from components.example_gen.first_look import check_table
from components.example_gen.formats import ExampleGenSettings
from pipeline.config.loading import load_config
from pipeline.runs.run import run_pipeline
from tests.support.broken_files import BROKEN, GOOD, LINES, Broken, parquet
from trainer_module.errors import DataError

ROOT = Path(__file__).parents[3]
COMMANDS = ("line cut off",)
"""What stands for the rest on the command line."""
DAMAGE = (b'"', b",", b"\n", b"\0", b"NA", b"nan", b"\xff\xfe", b";;;", b"{", b"null", b"1e999")


def write(broken: Broken, folder: Path) -> Path:
    """Writes the files and their config, and gives its path."""
    for name, content in broken.written().items():
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    data = broken.data | {"path": str(folder / "data" / broken.data["path"])}
    config = folder / "broken.yaml"
    config.write_text(
        yaml.safe_dump({"name": "broken", "task": "binary", **broken.config, "data": data})
    )
    return config


def message_of(broken: Broken, folder: Path) -> str:
    """What a run in this process ends with."""
    try:
        assert run_pipeline(load_config(write(broken, folder)), folder / "output").exit_code == 2
    except DataError as error:
        return str(error)
    (file,) = (folder / "output" / "broken" / "runs").glob("*/summary.json")
    summary = yaml.safe_load(file.read_text())
    assert (summary["status"], summary["error"]["component"]) == ("unusable", "ExampleGen")
    return str(summary["error"]["message"])


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.id)
def test_broken_file_is_refused_at_its_place(
    broken: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What would start TFX cannot be imported.
    monkeypatch.setitem(sys.modules, "pipeline.runs.execution", None)
    message = message_of(broken, tmp_path)
    for word in broken.words:
        assert word in message
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 500 + 2 * len(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("a.csv", GOOD.encode()),
        ("a.csv", GOOD.replace(",", ";").encode("utf-16")),
        ("a.jsonl", LINES.encode()),
        (
            "a.parquet",
            parquet({"x": [1.5, 2, 3] * 9, "t": ["a", "b", None] * 9, "label": [0] * 27}),
        ),
    ],
)
def test_random_damage_ends_in_a_data_error(name: str, sound: bytes, tmp_path: Path) -> None:
    chance = random.Random(name)  # noqa: S311 - no secret
    file = tmp_path / name
    for _ in range(60):
        data = bytearray(sound)
        for _ in range(chance.choice([1, 2, 9])):
            place = chance.randrange(len(data))
            if chance.random() < 0.4:
                del data[place : place + chance.choice([1, 50])]
            else:
                data[place:place] = chance.choice([*DAMAGE, chance.randbytes(8)])
        file.write_bytes(data)
        settings = ExampleGenSettings(format=name[2:], label="label", task="multiclass")
        message = ""
        try:
            check_table(settings, [str(file)])
        except DataError as error:
            message = str(error)
        assert message.isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("broken", [b for b in BROKEN if b.id in COMMANDS], ids=lambda b: b.id)
def test_command_refuses_broken_file(broken: Broken, tmp_path: Path) -> None:
    config = write(broken, tmp_path)
    done = subprocess.run(
        [sys.executable, str(ROOT / "local_runner.py"), "run", "--config", str(config)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    for word in broken.words:
        assert word in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
