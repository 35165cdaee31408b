"""Variants that are made one after another, and kept for the next attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.optimizer.artifacts import write_report
from components.optimizer.making import make_variants, reuse_variants
from components.optimizer.report import OptimizerReport
from trainer_module.errors import TrainingError
from trainer_module.export.variants.manifest import Variant, describe_file, write_variant


class Converter:
    """Writes small files in place of models, and remembers which."""

    def __init__(self) -> None:
        self.made_names: list[str] = []

    def __call__(self, name: str, folder: Path) -> Variant:
        self.made_names.append(name)
        if name == "int16x8":
            raise TrainingError("LiteRT has no operation for Erf: leave int16x8 out.")
        if name == "onnx":
            raise KeyboardInterrupt
        folder.mkdir()
        (folder / "model.bin").write_bytes(name.encode())
        variant = Variant(
            name,
            "litert",
            name,
            **describe_file(folder / "model.bin"),
            inputs=(),
            outputs=(),
            task="binary",
            bounds=None,
            classes=(),
            runtime="",
            runtime_version="",
            how_to_load="",
        )
        write_variant(variant, folder)
        return variant


def test_finished_variants_of_a_killed_run_are_kept(tmp_path: Path) -> None:
    first, second = Converter(), Converter()
    with pytest.raises(KeyboardInterrupt):
        make_variants(["int8", "float", "onnx"], tmp_path, first)
    (tmp_path / "float" / "model.bin").write_bytes(b"cut off")
    made, failed = make_variants(["int8", "float", "int16x8"], tmp_path, second)
    assert first.made_names == ["int8", "float", "onnx"]
    assert second.made_names == ["float", "int16x8"], "a damaged one is made again"
    assert list(made) == ["int8", "float"]
    assert failed == {"int16x8": "LiteRT has no operation for Erf: leave int16x8 out."}


def test_variants_of_the_same_model_are_reused(tmp_path: Path) -> None:
    earlier, output, kept = tmp_path / "3", tmp_path / "7", tmp_path / "kept"
    for folder in (earlier, output, kept):
        folder.mkdir()
    make_variants(["int8", "float"], earlier, Converter())
    write_report(str(earlier), OptimizerReport(metric="accuracy", made_from="abc"))
    reuse_variants(["int8", "onnx"], kept, str(output), "abd")
    assert list(kept.iterdir()) == []
    reuse_variants(["int8", "onnx"], kept, str(output), "abc")
    assert [path.name for path in kept.iterdir()] == ["int8"]
    again = Converter()
    made, _ = make_variants(["int8"], kept, again)
    assert list(made) == ["int8"]
    assert again.made_names == []
