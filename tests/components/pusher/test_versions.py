"""A push is atomic, whenever it is killed, and is not done twice."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tfx.components.pusher.executor import Executor as StockExecutor
from tfx.types import Artifact, standard_artifacts

from components.pusher.component import AtomicPushExecutor
from components.pusher.versions import (
    INCOMING_PREFIX,
    WITHDRAWN_PROPERTY,
    delete_atomically,
    free_version,
    list_versions,
    push_new_version,
    push_version,
    read_provenance,
)

FILES, FILE_SIZE = 20, 2**20
PUSH = """
import sys
from pathlib import Path
from components.pusher.versions import push_new_version
print("ready", flush=True)
sys.stdin.readline()
while True:
    push_new_version(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "variables").mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    for i in range(FILES):
        (folder / "variables" / str(i)).write_bytes(bytes([i]) * FILE_SIZE)
    return folder


def contents(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def test_versions_are_increasing_numbers(model: Path, tmp_path: Path) -> None:
    base = tmp_path / "serving"
    versions = []
    for _ in range(3):
        versions.append(push_new_version(model, base))
    assert len(set(versions)) == 3
    assert sorted(p.name for p in base.iterdir()) == sorted(v.name for v in versions)
    assert all(v.name.isdigit() and contents(v) == contents(model) for v in versions)


def test_failed_copy_leaves_no_version(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_in_part(source: str, target: str, *_: object, **__: object) -> None:
        Path(target).mkdir(parents=True, exist_ok=True)
        shutil.copy2(f"{source}/saved_model.pb", target)
        raise OSError("the disk is full")

    monkeypatch.setattr(shutil, "copytree", copy_in_part)
    with pytest.raises(OSError, match="full"):
        push_new_version(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_kill_at_any_moment_leaves_only_whole_versions(model: Path, tmp_path: Path) -> None:
    base = tmp_path / "serving"
    base.mkdir()  # The first kill may come before the push has made it.
    chance = random.Random(7)  # noqa: S311 - no secret
    abandoned = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PUSH, str(model), str(base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(chance.uniform(0.02, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stdin.close()
        abandoned += len(list(base.glob(f"{INCOMING_PREFIX}*")))
        for version in (p for p in base.iterdir() if p.name.isdigit()):
            assert contents(version) == contents(model)
    assert abandoned, "no kill fell into a copy; the model has to be larger"
    push_new_version(model, base)
    assert not list(base.glob(f"{INCOMING_PREFIX}*"))


@pytest.mark.slow
def test_concurrent_pushes_to_one_folder(model: Path, tmp_path: Path) -> None:
    """Each deletes what killed pushes have left, and takes the next number that is free."""
    base = tmp_path / "serving"
    command = [sys.executable, "-c", PUSH, str(model), str(base)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        until = time.monotonic() + 60
        while len(found := list_versions(base)) < 6 and time.monotonic() < until:
            assert [process.poll() for process in processes] == [None] * 3
            assert all(contents(version) == contents(model) for version in found)
    finally:
        errors = []
        for process in processes:
            process.kill()
            errors.append(process.communicate()[1])
    assert len(found) >= 6, errors


def test_new_version_is_higher_than_all_others(tmp_path: Path) -> None:
    future = tmp_path / str(int(time.time()) + 10**6)
    future.mkdir()
    (tmp_path / "notes").mkdir()
    assert int(free_version(tmp_path).name) == int(future.name) + 1


def test_deletion_of_a_version_leaves_nothing(model: Path, tmp_path: Path) -> None:
    version = push_new_version(model, tmp_path)
    delete_atomically(version)
    assert list(tmp_path.iterdir()) == []


class Push:
    """Pusher's executor on a model that Trainer exported, blessed even where it was withdrawn."""

    def __init__(self, folder: Path, exported: Path) -> None:
        self.serving = folder / "serving"
        self.model = standard_artifacts.Model()
        self.model.uri = str(folder / "model")
        self.model.id = 7
        shutil.copytree(exported, folder / "model" / "Format-Serving")
        self.blessing = standard_artifacts.ModelBlessing()
        self.blessing.uri = str(folder / "blessing")
        (folder / "blessing").mkdir()
        (folder / "blessing" / "BLESSED").touch()
        self.blessing.set_int_custom_property("blessed", 1)
        self.pushed = standard_artifacts.PushedModel()
        self.pushed.uri = str(folder / "pushed")

    def __call__(self) -> list[Path]:
        """Pushes; returns the versions that are there."""
        destination = {"filesystem": {"base_directory": str(self.serving)}}
        AtomicPushExecutor().Do(
            {"model": [self.model], "model_blessing": [self.blessing]},
            {"pushed_model": [self.pushed]},
            {"push_destination": json.dumps(destination)},
        )
        return list_versions(self.serving)

    @property
    def is_pushed(self) -> bool:
        return bool(self.pushed.get_int_custom_property("pushed"))


def test_pushed_artifact_has_the_properties_of_tfx(model: Path, tmp_path: Path) -> None:
    push, stock = Push(tmp_path, model), StockExecutor()
    expected = standard_artifacts.PushedModel()

    def properties(artifact: Artifact) -> dict[str, Any]:
        return {name: str(v) for name, v in artifact.mlmd_artifact.custom_properties.items()}

    push.model.set_int_custom_property(WITHDRAWN_PROPERTY, 1)
    assert push() == []
    stock._MarkNotPushed(expected)
    assert properties(push.pushed) == properties(expected)
    push.model.set_int_custom_property(WITHDRAWN_PROPERTY, 0)
    (version,) = push()
    stock._MarkPushed(expected, pushed_destination=str(version), pushed_version=version.name)
    assert properties(push.pushed) == properties(expected)


def test_model_is_pushed_once(model: Path, tmp_path: Path) -> None:
    push = Push(tmp_path, model)
    extra = tmp_path / "model" / "Format-Serving" / "assets.extra" / "layout.json"
    extra.parent.mkdir()
    extra.write_text("{}")
    (version,) = push()
    assert push.is_pushed
    provenance = read_provenance(version)
    assert provenance is not None
    assert (provenance.model, provenance.model_id) == (push.model.uri, 7)
    assert (version / "assets.extra" / "layout.json").read_text() == "{}"
    assert contents(Path(push.pushed.uri)) == contents(version)

    # As after a kill between the push and its record in the metadata.
    shutil.rmtree(push.pushed.uri)
    assert push() == [version]
    assert push.pushed.get_string_custom_property("pushed_version") == version.name
    assert contents(Path(push.pushed.uri)) == contents(version)

    # Another model of the same uri and id: the metadata began anew.
    push.model.mlmd_artifact.create_time_since_epoch = 5
    assert len(push()) == 2


def test_model_is_pushed_again_after_another_one(model: Path, tmp_path: Path) -> None:
    push = Push(tmp_path, model)
    push()
    push_new_version(model, push.serving)
    assert len(push()) == 3


def test_version_that_is_pushed_again_keeps_its_provenance(model: Path, tmp_path: Path) -> None:
    push = Push(tmp_path, model)
    (version,) = push()
    before = read_provenance(version)
    delete_atomically(version)
    push_version(Path(push.pushed.uri), version)
    assert read_provenance(version) == before is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"other": 1}',
    ],
)
def test_invalid_provenance_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / "pushed.json").write_text(text)
    assert read_provenance(tmp_path) is None
