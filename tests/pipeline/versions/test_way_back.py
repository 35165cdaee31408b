"""Damaged versions, which are none to go back to, and the marks of versions that were withdrawn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.pusher.versions import (
    WITHDRAWN_FILE,
    list_versions,
    mark_withdrawn,
    push_new_version,
    read_withdrawal,
)
from components.serving.versions import check_model, find_version
from pipeline.config.loading import load_config
from pipeline.records.event_log import EventKind
from pipeline.versions.retention import find_expired
from tests.support.pipeline_service import DIGITS, ROOT, Service, add_variants
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


def test_a_marker_that_may_not_be_read_counts(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    mark_withdrawn(tmp_path / "1", "wrong labels")
    marker = tmp_path / "1" / WITHDRAWN_FILE
    marker.chmod(0)
    tmp_path.chmod(0o755)
    # Root may read every file.
    code = (
        "import os, pathlib; from components.pusher.versions import read_withdrawal;"
        " os.geteuid() or os.setuid(65534); print(repr(read_withdrawal(pathlib.Path('1'))))"
    )
    for mode, expected in ((0o755, "''"), (0, "None")):
        marker.parent.chmod(mode)
        command = [sys.executable, "-c", code]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected, done.stderr
    marker.parent.chmod(0o755)


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


def test_rollback_skips_what_is_damaged(service: Service, three: list[int]) -> None:
    first, second, third = three
    damage(service.folder(second), "assets.extra/certificate/golden.parquet")
    skipped, _, _, said = service.rollback()
    assert skipped == (
        f"version {second} is damaged and therefore skipped: "
        "assets.extra/certificate/golden.parquet has changed since the version was certified"
    )
    assert said.endswith(f"is in service, a copy of version {first}")
    assert (service.serving(), marked(service)) == ("first", [second, third])


def test_rollback_goes_back_from_what_serves_and_not_from_what_is_damaged(
    service: Service, three: list[int]
) -> None:
    first, second, third = three
    damage(service.folder(third))
    serves = [v["version"] for v in service.models() if v["serves"]]
    assert serves == [second], "a server refuses the third"
    with pytest.raises(ConfigError, match="this model is in service"):
        service.withdraw(second)
    service.rollback()
    assert (service.serving(), marked(service)) == ("first", [second, third])
    shutil.rmtree(service.folder(first) / "assets.extra")
    (service.folder(first) / GRAPH).unlink()
    damage(list_versions(Path(service.layout.serving))[-1])
    with pytest.raises(ConfigError, match=r"version to go back to: .*saved_model\.pb is missing"):
        service.rollback()


def test_version_whose_variant_is_damaged_serves_and_is_none_to_go_back_to(
    service: Service, three: list[int]
) -> None:
    _, second, third = three
    for number in (second, third):
        add_variants(service.folder(number), "int8")
        damage(service.folder(number), "variants/int8/model.tflite")
    shown = {v["version"]: v for v in service.models()}
    assert shown[third]["serves"], "servers without --variant take no notice"
    assert shown[third]["damaged"].startswith("variants/int8/model.tflite is damaged: its sha256")
    with pytest.raises(ConfigError, match=r"is damaged: variants/int8/model\.tflite"):
        service.rollback(to=second)
    service.rollback()
    assert service.serving() == "first"


def test_copy_that_is_not_what_was_certified_is_not_put_in_service(
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


def test_withdrawn_versions_are_marked_before_the_copy_serves_and_until_they_are_reinstated(
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


def test_what_the_event_log_alone_has_of_a_withdrawal_is_marked_by_another(
    service: Service, three: list[int]
) -> None:
    _, second, third = three
    service.rollback()
    (service.folder(third) / WITHDRAWN_FILE).unlink()
    # Pushed by hand under a number that was withdrawn: another model.
    number = third + 5
    shutil.copytree(service.folder(second), service.folder(number))
    service.event_log.record(EventKind.WITHDRAWN, "", version=number, model="/another")
    assert {v["version"] for v in service.models() if v["withdrawn"]} == {third}
    service.withdraw(third)
    assert marked(service) == [third]


def test_newest_version_that_was_not_withdrawn_is_asked(service: Service, three: list[int]) -> None:
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


def test_rollback_without_the_secret_of_a_notification_goes_back(
    service: Service, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    hook = "notify.webhook={url: 'https://example.com/hook', secret_variable: HOOK_KEY}"
    done = service.command("rollback", "--set", hook)
    assert done.returncode == 0
    assert (
        "a notification of the rollback was not sent: notify.webhook.secret_variable" in done.stdout
    )
    assert service.serving() == "second"


def test_version_that_has_lost_its_certificate_is_damaged(
    service: Service, three: list[int]
) -> None:
    first, second, third = three
    for number in (second, third):
        shutil.rmtree(service.folder(number) / "assets.extra" / "certificate")
    shown = {v["version"]: v["damaged"] for v in service.models()}
    assert shown[third] == "assets.extra/certificate is missing"
    assert [v["version"] for v in service.models() if v["serves"]] == [first]
    with pytest.raises(ConfigError, match=r"assets\.extra/certificate is missing"):
        service.rollback(to=second)
