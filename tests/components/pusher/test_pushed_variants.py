"""Accepted variants are pushed with their version, as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.optimizer.report import REPORT_FILE, OptimizerReport, VariantReport
from components.pusher.variants import accepted_variants, find_variant, read_manifest
from components.pusher.versions import list_versions, push_new_version
from trainer_module.errors import ConfigError, DataError
from trainer_module.export.variants.manifest import (
    Variant,
    describe_file,
    read_variant,
    write_variant,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Two variants, of which one is accepted."""
    folder = tmp_path / "variants"
    for name in ("int8", "float16"):
        file = folder / name / "model.tflite"
        file.parent.mkdir(parents=True)
        file.write_bytes(name.encode() * 100)
        variant = Variant(
            name=name,
            format="litert",
            precision=name,
            **describe_file(file),
            inputs=(),
            outputs=(),
            task="binary",
            bounds=None,
            classes=("no", "yes"),
            runtime="ai-edge-litert",
            runtime_version="2.3.0",
            how_to_load="open_variant(FOLDER)",
            metrics={"accuracy": 0.9},
        )
        write_variant(variant, folder / name)
    report = OptimizerReport(
        metric="accuracy",
        variants=[
            VariantReport(name="int8", accepted=True),
            VariantReport(name="float16", accepted=False, reasons=["too large"]),
        ],
    )
    (folder / REPORT_FILE).write_text(report.model_dump_json())
    return folder


def test_version_has_accepted_variants_with_a_manifest(
    model: Path, artifact: Path, tmp_path: Path
) -> None:
    assert accepted_variants(artifact) == ["int8"]
    version = push_new_version(model, tmp_path / "serving", variants=artifact)
    assert sorted(p.name for p in (version / "variants").iterdir()) == ["int8", "manifest.json"]
    listed = read_manifest(version)["int8"]
    kept = read_variant(find_variant(version, "int8"))
    assert listed["sha256"] == kept.sha256
    assert listed["metrics"] == {"accuracy": 0.9}
    assert listed["how_to_load"]
    assert listed["runtime_version"] == "2.3.0"
    # A rollback copies the version's folder.
    copy = push_new_version(version, tmp_path / "serving")
    assert read_manifest(copy) == read_manifest(version)


def test_changed_variant_is_not_pushed(model: Path, artifact: Path, tmp_path: Path) -> None:
    (artifact / "int8" / "model.tflite").write_bytes(b"another")
    with pytest.raises(DataError, match=r"model\.tflite"):
        push_new_version(model, tmp_path / "serving", variants=artifact)
    assert list_versions(tmp_path / "serving") == []
    assert list((tmp_path / "serving").iterdir()) == []


def test_unknown_variant_of_a_version_is_refused(
    model: Path, artifact: Path, tmp_path: Path
) -> None:
    plain = push_new_version(model, tmp_path / "serving")
    assert read_manifest(plain) == {}
    with pytest.raises(ConfigError, match="no variants"):
        find_variant(plain, "int8")
    version = push_new_version(model, tmp_path / "serving", variants=artifact)
    with pytest.raises(ConfigError, match=r"--variant float16: .*int8"):
        find_variant(version, "float16")


def test_damaged_manifest_is_refused(model: Path, artifact: Path, tmp_path: Path) -> None:
    version = push_new_version(model, tmp_path / "serving", variants=artifact)
    path = version / "variants" / "manifest.json"
    path.write_text(json.dumps({"variants": 3})[:-2])
    with pytest.raises(DataError, match=r"manifest\.json"):
        read_manifest(version)
