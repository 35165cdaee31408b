"""Certificates over a real export: what agrees, what is kept, and each corruption caught."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.infra_validator.interfaces import INTERFACES, REFERENCE, certify
from components.infra_validator.worker import (
    EVAL_ROWS,
    choose_golden_rows,
    predict_keras,
)
from components.pusher.certificate import (
    CERTIFICATE_FILE,
    CERTIFICATE_FOLDER,
    CERTIFICATE_PATH,
    GoldenRow,
    digest_files,
    read_certificate,
)
from components.pusher.versions import push_new_version
from components.serving.certificate import (
    compare,
    load_certified,
    read_golden,
)
from components.serving.requests import Arrays
from components.serving.server.repository import Repository
from tests.support.served_trips import SETTINGS, Pushed, make_rows
from tests.support.trainer_data import to_example
from trainer_module.errors import DataError, TrainingError
from trainer_module.export.interface import read_interface
from trainer_module.settings import TrainerSettings

TOLERANCE = 1e-3
Change = Callable[[Path], object]


def statistics_of(examples: list[bytes]) -> bytes:
    batch = ExamplesToRecordBatchDecoder().DecodeBatch(examples)
    return bytes(generate_statistics_in_memory(batch).SerializeToString())


@pytest.fixture(scope="session")
def golden(pushed: Pushed) -> list[GoldenRow]:
    examples = [to_example(row) for row in make_rows(250)]
    files = [str(pushed.serving.parent / "raw" / "Split-eval" / "data.gz")]
    return choose_golden_rows(files, statistics_of(examples), read_interface(pushed.version))


@pytest.fixture(scope="session")
def reference(pushed: Pushed, golden: list[GoldenRow]) -> Arrays:
    payload = {
        "model": str(pushed.version),
        "transform_graph": str(pushed.serving.parent / "graph"),
        "custom_config": TrainerSettings.model_validate(SETTINGS).to_custom_config(),
    }
    interface = read_interface(pushed.version)
    with pytest.raises(TrainingError, match="has no golden row, as no server decodes the pictures"):
        predict_keras(payload, [], interface)
    taken, answers, why_not = predict_keras(payload, golden, interface)
    assert (taken, why_not) == (golden, "")
    assert answers is not None
    return answers


@pytest.fixture(scope="session")
def certified(
    pushed: Pushed,
    golden: list[GoldenRow],
    reference: Arrays,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A version with its certificate."""
    folder = tmp_path_factory.mktemp("certified")
    certificate = folder / CERTIFICATE_FOLDER
    certificate.mkdir()
    certify(pushed.version, golden, reference, "", TOLERANCE, certificate)
    return push_new_version(pushed.version, folder / "trips", certificate=certificate)


@pytest.mark.slow
def test_golden_rows_are_of_eval_and_at_each_edge(golden: list[GoldenRow]) -> None:
    descriptions = [row.description for row in golden]
    assert descriptions[0] == "row 1 of eval"
    assert sum(text.endswith("of eval") for text in descriptions) == min(EVAL_ROWS, 50)
    for edge in (
        "every optional column is missing",
        "'fare' is its largest value",
        "'area' is missing",
        "'company' is an unknown value",
        "'tags' has three values",
    ):
        assert edge in descriptions
    # By their values: in which order they come, protobuf does not say.
    parsed = [tf.train.Example.FromString(row.example) for row in golden]
    assert len({one.SerializeToString(deterministic=True) for one in parsed}) == len(golden)
    of_eval = [one.features.feature for one in parsed[:50]]
    for row, example in zip(golden[51:], parsed[51:], strict=True):
        others = {
            n: v for n, v in example.features.feature.items() if f"'{n}'" not in row.description
        }
        assert any(all(one[n] == v for n, v in others.items()) for one in of_eval), row.description


@pytest.mark.slow
def test_all_ways_of_a_model_agree(certified: Path, golden: list[GoldenRow]) -> None:
    certificate = read_certificate(certified / CERTIFICATE_PATH)
    assert certificate is not None
    assert (certificate.failure, certificate.expected_by) == ("", REFERENCE)
    assert certificate.ways.keys() == INTERFACES.keys()
    assert max(way.largest_difference for way in certificate.ways.values()) < 1e-5
    assert {"saved_model.pb", "assets.extra/inputs.json"} <= certificate.files.keys()


@pytest.mark.slow
def test_golden_rows_and_answers_are_read_as_written(
    certified: Path, golden: list[GoldenRow], reference: Arrays
) -> None:
    rows, answers = read_golden(certified / CERTIFICATE_PATH)
    assert rows == golden
    assert answers.keys() == reference.keys()
    for name, values in reference.items():
        assert (answers[name] == values).all()
    size = sum(path.stat().st_size for path in (certified / CERTIFICATE_PATH).iterdir())
    assert size < 50_000
    assert load_certified(certified).folder == certified


def flip_bytes(version: Path) -> None:
    (data,) = (version / "variables").glob("*.data*")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)


def drop_line(version: Path) -> None:
    (vocabulary,) = (version / "assets").glob("company*")
    lines = vocabulary.read_bytes().splitlines(keepends=True)
    vocabulary.write_bytes(b"".join(lines[1:]))


def swap_classes(version: Path) -> None:
    """As constants of the graph they are the `string_val` of a TensorProto."""
    graph = version / "saved_model.pb"
    content, names = graph.read_bytes(), (b"B\x010B\x011", b"B\x011B\x010")
    assert names[0] in content
    graph.write_bytes(content.replace(*names))


CORRUPTIONS = [flip_bytes, drop_line, swap_classes]


def copied(version: Path, tmp_path: Path, change: Change) -> Path:
    copy = tmp_path / "trips" / "7"
    shutil.copytree(version, copy)
    change(copy)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("change", CORRUPTIONS)
def test_version_whose_files_have_changed_never_serves(
    certified: Path, tmp_path: Path, change: Change
) -> None:
    copy = copied(certified, tmp_path, change)
    repository = Repository(copy.parent)
    repository.scan()
    assert repository.number is None
    (state,) = repository.states
    assert "has changed since the version was certified" in state.message


@pytest.mark.slow
@pytest.mark.parametrize("change", CORRUPTIONS)
def test_version_that_answers_otherwise_never_serves(
    certified: Path, tmp_path: Path, change: Change
) -> None:
    """Also where its files are those of the certificate."""
    copy = copied(certified, tmp_path, change)
    path = copy / CERTIFICATE_PATH / CERTIFICATE_FILE
    content = json.loads(path.read_text())
    found = digest_files(copy)
    content["files"] = {name: found[name] for name in content["files"]}
    path.write_text(json.dumps(content))
    right = "the version is damaged" if change is flip_bytes else "differ from its certificate"
    with pytest.raises(DataError, match=right):
        load_certified(copy)


def test_differences_are_relative() -> None:
    rows = [GoldenRow(f"row {place}", b"") for place in range(3)]
    right = {"value": np.array([1000.0, np.nan, 0.1])}
    agreement = compare(right, {"value": np.array([1000.5, np.nan, 0.2])}, rows)
    assert (agreement.row, agreement.output) == ("row 0", "value")
    assert agreement.largest_difference == pytest.approx(5e-4)
    infinite = compare(right, {"value": np.array([1000.0, 1.0, 0.1])}, rows)
    assert (infinite.row, infinite.largest_difference) == ("row 1", np.inf)
    assert compare(right, {"other": right["value"]}, rows).largest_difference == np.inf


def test_small_numbers_are_compared_by_their_own_size() -> None:
    rows = [GoldenRow(f"row {place}", b"") for place in range(2)]
    right = {"value": np.array([3e-4, -4e-4])}
    assert compare(right, {"value": np.zeros(2)}, rows).largest_difference == pytest.approx(1)
    near = {"value": right["value"] + 1e-9}
    assert compare(right, near, rows).largest_difference < 1e-5
    zeros = {"value": np.zeros(2)}
    assert compare(zeros, zeros, rows).largest_difference == 0
    scores = {"scores": np.array([[1e-9, 1 - 1e-9], [1e-9, 1 - 1e-9]])}
    none = {"scores": np.array([[0.0, 1.0], [0.0, 1.0]])}
    assert compare(scores, none, rows).largest_difference == pytest.approx(1e-9)


def test_nearly_tied_classes_count_as_equal() -> None:
    rows = [GoldenRow("a", b""), GoldenRow("b", b"")]
    names = np.array([[b"x", b"y"]] * 2, object)
    scores = np.array([[0.5, 0.5001], [0.9, 0.1]])
    right = {"class": np.array([b"y", b"x"], object), "classes": names, "scores": scores}
    tie = {**right, "class": np.array([b"x", b"x"], object)}
    assert compare(right, tie, rows).largest_difference == pytest.approx(1e-4)
    wrong = {**right, "class": np.array([b"y", b"y"], object)}
    assert compare(right, wrong, rows).largest_difference == pytest.approx(0.8)
    swapped = {**right, "classes": names[:, ::-1]}
    assert compare(right, swapped, rows).largest_difference == np.inf
