"""Damaged versions, which are none to go back to, and the marks of versions that were withdrawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from components.pusher.versions import (
    list_versions,
    push_new_version,
    read_withdrawal,
)
from components.serving.versions import check_model, find_version
from pipeline.config.loading import load_config
from pipeline.versions.retention import find_expired
from tests.support.pipeline_service import DIGITS, Service
from trainer_module.errors import ConfigError, DataError

GRAPH = "saved_model.pb"
CHANGED = f"{GRAPH} has changed since the version was certified"


def damage(version: Path, name: str = GRAPH) -> None:
    """Flips one bit of a file."""
    content = bytearray((version / name).read_bytes())
    content[0] ^= 1
    (version / name).write_bytes(content)


def marked(service: Service) -> list[int]:
    """The versions whose folders are marked."""
    versions = list_versions(Path(service.layout.serving))
    return [int(v.name) for v in versions if read_withdrawal(v) is not None]


@pytest.fixture
def three(service: Service) -> list[int]:
    return [service.push(c, certified=True) for c in ("first", "second", "third")]


def test_rollback_to_a_damaged_version_is_refused_before_anything_is_marked(
    service: Service, three: list[int]
) -> None:
    _, second, third = three
    damage(service.folder(second))
    done = service.command("rollback", "--to", str(second))
    assert done.returncode == 2
    assert (
        f"--to {second}: this version is damaged: {CHANGED}; the version in service" in done.stderr
    )
    assert done.stdout == ""
    assert (service.serving(), service.count(), marked(service)) == ("third", 3, [])
    assert service.marks() == {"first": 0, "second": 0, "third": 0}
    shown = {v["version"]: (v["serves"], v["damaged"]) for v in service.models()}
    assert shown[third] == (True, None)
    assert shown[second] == (False, CHANGED)


def test_rollback_skips_damaged_versions(service: Service, three: list[int]) -> None:
    first, second, third = three
    damage(service.folder(second), "assets.extra/certificate/golden.parquet")
    skipped, _, _, shown = service.rollback()
    assert skipped == (
        f"version {second} is damaged and therefore skipped: "
        "assets.extra/certificate/golden.parquet has changed since the version was certified"
    )
    assert shown.endswith(f"is in service, a copy of version {first}")
    assert (service.serving(), marked(service)) == ("first", [second, third])


def test_damaged_copy_is_not_put_in_service(
    service: Service, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is failing."""
    copy = shutil.copy2

    def badly(source: str, target: str, **options: bool) -> None:
        copy(source, target, **options)
        if target.endswith(GRAPH):
            damage(Path(target).parent)

    with monkeypatch.context() as patch:
        patch.setattr(shutil.copytree, "__defaults__", (False, None, badly, False, False))
        with pytest.raises(ConfigError, match=f"its copy is damaged: {CHANGED}"):
            service.rollback()
    assert (service.serving(), service.count(), marked(service)) == ("third", 3, [])
    assert service.marks() == {"first": 0, "second": 0, "third": 0}
    assert not list(Path(service.layout.serving).glob(".incoming-*"))


def test_model_that_was_damaged_since_its_certificate_is_not_pushed(service: Service) -> None:
    service.push("first", certified=True)
    model = Path(service.model("first").uri)
    certificate = service.certificate(model)
    damage(model)
    with pytest.raises(
        DataError, match=f"{model} is not pushed, because its copy is damaged: {CHANGED}"
    ):
        push_new_version(model, Path(service.layout.serving), certificate=certificate)
    assert service.count() == 1


def test_withdrawn_versions_are_marked_until_they_are_reinstated(
    service: Service, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second, third = three
    seen: list[list[int]] = []

    def push(*given: object, **options: object) -> Path:
        seen.append(marked(service))
        return push_new_version(*given, **options)

    monkeypatch.setattr("pipeline.versions.rollback.push_new_version", push)
    service.rollback(reason="wrong labels")
    assert seen == [[third]]
    assert read_withdrawal(service.folder(third)) == "wrong labels"
    service.rollback(to=third, force=True)
    assert service.serving() == "third"
    assert marked(service) == []
    copy = third + 1
    service.withdraw(second)
    assert marked(service) == [second, copy], "they are of one model"


def test_newest_version_that_is_not_withdrawn_serves(service: Service, three: list[int]) -> None:
    first, second, third = three
    serving = Path(service.layout.serving)
    assert find_version(str(serving), None) == service.folder(third)
    service.rollback()
    shutil.rmtree(list_versions(serving)[-1])
    assert find_version(str(serving), None) == service.folder(second)
    assert check_model(serving) == service.folder(second)
    assert find_version(str(serving), third) == service.folder(third), "it is named"
    assert check_model(service.folder(third)) == service.folder(third)
    damage(service.folder(second))
    with pytest.raises(DataError, match=f"{second}/{CHANGED}"):
        check_model(serving)
    service.withdraw(second)
    service.withdraw(first, force=True)
    with pytest.raises(ConfigError, match="all versions were withdrawn"):
        find_version(str(serving), None)


def test_retention_keeps_a_version_to_go_back_to(service: Service) -> None:
    first, second, third, _ = [
        service.push(c, certified=True) for c in ("first", "second", "third", "fourth")
    ]
    config = load_config(DIGITS, ["schedule={cron: 0 3 * * *, keep: {versions: 2}}"])

    def expired() -> list[int]:
        found = find_expired(config.schedule, service.layout, service.event_log)
        return [version.number for version in found.versions]

    assert expired() == [first, second]
    damage(service.folder(third))
    assert expired() == [first]
