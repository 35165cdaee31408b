"""Models converted for other runtimes, against TensorFlow's answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from components.optimizer.converting.conversion import convert
from components.optimizer.evaluating import measure_variants, unmeasured_reason
from components.optimizer.gating import latency_of
from tests.support.exported_models import ask, build, export, make_problem, make_sample
from trainer_module.data.dealing import Folds, Parts
from trainer_module.errors import DataError
from trainer_module.export.variants.manifest import VARIANT_FILE, read_variant
from trainer_module.export.variants.measuring import measure_in_process, save_sample
from trainer_module.export.variants.running import open_variant
from trainer_module.families.supervised.ensemble.linear import fit_linear
from trainer_module.families.supervised.ensemble.member import forest_member
from trainer_module.families.supervised.ensemble.model import build_ensemble
from trainer_module.families.supervised.trees.averaging import grow_averaged
from trainer_module.families.supervised.trees.forest import columns_of, split_columns
from trainer_module.families.supervised.trees.growing import TreeExamples, grow
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings

NUMBERS = (
    TransformedFeature("amount", "numeric", (1,)),
    TransformedFeature("spot of it", "numeric", (2,)),
)
CODES = (
    TransformedFeature("area", "categorical", (1,), vocabulary_size=6),
    TransformedFeature("tags", "categorical", (2,), vocabulary_size=6, many=True),
)
TOKENS = (TransformedFeature("review", "text", (5,), vocabulary_size=6),)
TERMS = (TransformedFeature("review", "text", (5, 2), vocabulary_size=3000),)
PICTURE = (TransformedFeature("photo", "image", (12, 12, 3)),)
ORDINAL = {"kind": "ordinal", "order": ["a", "b", "c"]}
QUANTILES = {"kind": "regression", "quantiles": [0.1, 0.9]}


@dataclass(frozen=True)
class Case:
    kind: str
    task: Any
    features: tuple[TransformedFeature, ...]
    classes: str = ""
    model: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.kind

    @property
    def problem(self) -> Problem:
        return make_problem(self.task, self.features, tuple(self.classes))


CASES = [
    Case("wide_deep", QUANTILES, NUMBERS + CODES),
    Case("tabular", "multiclass", NUMBERS + CODES, "abc", {"members": 3}),
    Case("cnn", ORDINAL, PICTURE + NUMBERS, "abc", {"filters": [4]}),
    Case("text_cnn", "count", TOKENS, "", {"filters": [3], "widths": [2, 3], "embedding_size": 4}),
    Case(
        "bert",
        "binary",
        TOKENS + NUMBERS,
        "ab",
        {"size": {"layers": 1, "hidden": 8, "heads": 2, "max_tokens": 16}},
    ),
]
TRIPS = make_problem("binary", NUMBERS + CODES, tuple("ab"))


@pytest.fixture(scope="session")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(build("mlp", TRIPS), TRIPS, tmp_path_factory.mktemp("trips") / "model")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_kind_of_model_predicts_the_same_in_every_runtime(case: Case, tmp_path: Path) -> None:
    """Whole numbers come close, of any number of rows."""
    problem = case.problem
    model = export(build(case.kind, problem, **case.model), problem, tmp_path / "model")
    sample = make_sample(problem)
    right = ask(model, sample)
    allowances = {"float": 1e-5, "onnx": 1e-5, "int8": 0.02}
    if case.kind == "cnn":
        allowances["onnx_int8"] = 0.02
    for name, allowed in allowances.items():
        folder = tmp_path / name
        folder.mkdir()
        convert(name, model, sample, folder)
        opened = open_variant(folder)
        for rows in (1, 40, 7, 40):
            given = opened.predict({name: values[:rows] for name, values in sample.items()})
            assert given.keys() == right.keys()
            for output, expected in right.items():
                scale = max(1.0, np.abs(expected).max())
                assert given[output].dtype == np.float32
                np.testing.assert_allclose(given[output], expected[:rows], atol=allowed * scale)


@pytest.mark.slow
def test_tree_ensembles_predict_the_same_in_every_runtime(tmp_path: Path) -> None:
    """By numbers, by bitmaps of categories, by terms, and with several values in a leaf."""
    problem = make_problem("multiclass", NUMBERS + CODES + TERMS, tuple("abc"))
    sample = make_sample(problem, 300)
    score = sample["amount"][:, 0] + sample["area"][:, 0] % 2
    labels, columns = np.digitize(score, [0, 1]), columns_of(problem)
    settings = TrainerSettings.model_validate(
        {"label": "y", "task": "multiclass", "model": {"kind": "trees", "trees": 9}}
    )
    tensors = {name: tf.constant(values) for name, values in sample.items()}
    bags = {feature.name: sample[feature.name] for feature in TERMS}
    examples = TreeExamples(columns, split_columns(tensors, columns), labels, None, bags)
    folds = Folds(Parts(np.arange(300) % 10), 1)
    boosted = grow(examples, problem, settings, folds, lambda *_: None)
    assert len(boosted.forest.words)
    averaged = grow_averaged("random", examples, problem, folds, 20, 3)
    members = {
        "boosted": forest_member(problem, boosted, "boosted"),
        "random": forest_member(problem, averaged, "random"),
        "linear": fit_linear(examples, problem, folds, 3),
    }
    builds = {name: member.build for name, member in members.items()}
    ensemble = build_ensemble(problem, builds, {"boosted": 0.5, "random": 0.3, "linear": 0.2}, 1.5)
    model = export(ensemble, problem, tmp_path / "model")
    for name in ("float", "onnx"):
        folder = tmp_path / name
        folder.mkdir()
        convert(name, model, sample, folder)
        given = open_variant(folder).predict(sample)["scores"]
        np.testing.assert_allclose(given, ask(model, sample)["scores"], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("float16", 0.001),
        ("int16x8", 0.02),
        ("onnx_float16", 0.002),
        ("tensorrt_int8", 1e-5),
    ],
)
def test_every_precision_comes_close(name: str, allowed: float, tmp_path: Path) -> None:
    problem = make_problem("multiclass", PICTURE, tuple("abc"))
    model = export(build("cnn", problem, filters=[4]), problem, tmp_path / "model")
    sample, folder = make_sample(problem), tmp_path / name
    folder.mkdir()
    variant = convert(name, model, sample, folder)
    given = open_variant(folder).predict(sample)
    for output, expected in ask(model, sample).items():
        np.testing.assert_allclose(given[output], expected, atol=allowed)
    assert given["predictions"].min() > 0
    if not name.startswith("tensorrt"):
        return
    measured = measure_variants({name: variant}, tmp_path, sample)[name]
    assert latency_of(measured.measured) is None, "a CPU's time says nothing of a GPU's"
    assert "TensorrtExecutionProvider" in unmeasured_reason(measured)
    assert "--minShapes=photo:1x12x12x3 --optShapes=photo:32x12x12x3" in variant.trtexec
    settings = variant.provider["TensorrtExecutionProvider"]
    assert settings["trt_profile_max_shapes"] == "photo:1024x12x12x3"
    assert ("trt_int8_enable" in settings) == (name == "tensorrt_int8")
    assert all((folder / file).stat().st_size for file in variant.beside)


@pytest.fixture(scope="session")
def litert(trips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("litert")
    convert("float", trips, make_sample(TRIPS), folder)
    return folder


@pytest.mark.proof
def test_litert_predicts_as_tensorflow_for_any_number_of_rows(trips: Path, litert: Path) -> None:
    sample = make_sample(TRIPS)
    opened = open_variant(litert)
    # For programs without our manifest: a column for each class, and one for `predictions`.
    interpreter = Interpreter(str(litert / opened.variant.file))
    first, second = (tuple(out["shape"]) for out in interpreter.get_output_details())
    assert (first, second) == ((1, 2), (1, 1))
    for rows in (1, 40, 7, 0):
        some = {name: values[:rows] for name, values in sample.items()}
        given, right = opened.predict(some), ask(trips, some)
        assert given.keys() == right.keys() == {"predictions", "scores"}
        for name, expected in right.items():
            np.testing.assert_allclose(given[name], expected, atol=1e-6)
    answer = opened.answer(opened.predict(sample))
    names = [[b"a", b"b"][int(score > 0.5)] for score in answer["scores"][:, 1]]
    assert answer["class"].tolist() == names
    assert answer["classes"].tolist() == [[b"a", b"b"]] * 40


@pytest.fixture
def variant(litert: Path) -> Path:
    return litert


@pytest.mark.slow
def test_variant_is_measured_without_tensorflow(variant: Path, tmp_path: Path) -> None:
    save_sample(make_sample(TRIPS), tmp_path / "sample.npz")
    figures = measure_in_process(variant, tmp_path / "sample.npz")
    assert 0 < figures["p50_ms_batch_1"] <= figures["p99_ms_batch_1"]
    assert figures["rows_per_second_batch_32"] > figures["rows_per_second_batch_1"]
    # TensorFlow alone, as in this process, takes more.
    assert 1e7 < figures["peak_memory_bytes"] < 4e8
    assert figures["tensorflow_was_imported"] is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("area"), r"feature 'area' is missing; found amount"),
        (lambda f: f.update(area=f["area"] + 0.5), r"'area' is float64, expected int64"),
        (lambda f: f.update(amount=f["spot of it"]), r"'amount' is \[40, 2\]"),
    ],
)
def test_wrong_features_are_refused(
    variant: Path, change: Callable[..., Any], message: str
) -> None:
    sample = make_sample(TRIPS)
    change(sample)
    with pytest.raises(DataError, match=message):
        open_variant(variant).predict(sample)


def test_damaged_file_is_refused(variant: Path, tmp_path: Path) -> None:
    content = json.loads((variant / VARIANT_FILE).read_text())
    data = bytearray((variant / content["file"]).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / content["file"]).write_bytes(data)
    (tmp_path / VARIANT_FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"model\.\w+ is damaged: its sha256 is \w+, but"):
        open_variant(tmp_path)
    (tmp_path / content["file"]).unlink()
    with pytest.raises(DataError, match=r"model\.\w+ cannot be read \(No such file"):
        open_variant(tmp_path)
    (tmp_path / VARIANT_FILE).write_text(json.dumps({**content, "file": "../other"}))
    with pytest.raises(DataError, match=r"variant\.json is damaged .*'\.\./other' is not in"):
        read_variant(tmp_path)


@pytest.mark.slow
def test_onnx_runtime_sends_no_telemetry(tmp_path: Path) -> None:
    """Unless it is told not to, it leaves a number of this machine, and sends Microsoft events."""
    spoken_for = {"CI", "GITHUB_ACTIONS", "TF_BUILD", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    environment = {name: v for name, v in os.environ.items() if name not in spoken_for}
    environment |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", "import trainer_module, onnxruntime"]
    subprocess.run(command, env=environment, check=True, cwd=Path(__file__).parents[3])
    assert not list(tmp_path.iterdir())
