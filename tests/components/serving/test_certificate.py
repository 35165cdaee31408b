"""Certificates over a real export: what agrees, what is kept, and each corruption caught."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.example_gen.columns.tensors import to_request
from components.infra_validator.component import run_process
from components.infra_validator.interfaces import INTERFACES, REFERENCE, certify
from components.infra_validator.worker import (
    EVAL_ROWS,
    answer_accepted,
    batch_rows,
    choose_golden_rows,
    predict_keras,
)
from components.pusher.certificate import (
    CERTIFICATE_FILE,
    CERTIFICATE_FOLDER,
    CERTIFICATE_PATH,
    GOLDEN_FILE,
    CertificateLimits,
    GoldenRow,
    digest_files,
    read_certificate,
)
from components.pusher.versions import push_new_version
from components.serving.batch.explaining import Explainer, columns_of
from components.serving.batch.reading import Input, read_blocks
from components.serving.certificate import (
    GoldenInputs,
    compare,
    load_certified,
    predict_raw,
    read_golden,
)
from components.serving.model import load_model
from components.serving.requests import Arrays
from components.serving.server.repository import Repository
from tests.support.served_trips import SETTINGS, Pushed, make_rows
from tests.support.trainer_data import make_image, to_example
from trainer_module.errors import DataError, TrainingError
from trainer_module.export.interface import ModelInput, ModelInterface, RawColumn, read_interface
from trainer_module.settings import TrainerSettings

pytestmark = pytest.mark.slow

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


def test_the_reference_leaves_out_only_the_rows_that_transform_rejects() -> None:
    class Strict:
        def answer(self, examples: list[bytes]) -> Arrays:
            if b"bad" in examples:
                raise tf.errors.InvalidArgumentError(None, None, "a bad row")
            return {"scores": np.array([int(example) for example in examples])}

    rows = [GoldenRow("", b"bad" if n in (0, 5, 6) else b"%d" % n) for n in range(11)]
    reference: Any = Strict()
    parts = answer_accepted(reference, rows)
    assert [row.example for part, _ in parts for row in part] == [
        b"%d" % n for n in (1, 2, 3, 4, 7, 8, 9, 10)
    ]
    assert [n for _, answer in parts for n in answer["scores"]] == [1, 2, 3, 4, 7, 8, 9, 10]
    assert answer_accepted(reference, rows[:1]) == []


@pytest.mark.parametrize(
    ("picture", "shape", "rows"),
    [("", (128,), 128), ("", (512,), 32), ("", (64, 2), 128), ("path", (8, 8, 1), 32)],
)
def test_batches_of_large_rows_are_small(picture: str, shape: tuple[int, ...], rows: int) -> None:
    column = RawColumn("a", "a", "string", False, 1, picture)
    feature = ModelInput("a", "a", "float32", shape)
    assert batch_rows(ModelInterface((column,), features=(feature,))) == rows


def test_golden_rows_are_of_eval_and_at_each_edge(golden: list[GoldenRow]) -> None:
    said = [row.description for row in golden]
    assert said[0] == "row 1 of eval"
    assert sum(text.endswith("of eval") for text in said) == min(EVAL_ROWS, 50)
    for edge in (
        "every optional column is missing",
        "'fare' is its largest value",
        "'area' is missing",
        "'company' is an unknown value",
        "'tags' has three values",
    ):
        assert edge in said
    # By their values: in which order they come, protobuf does not say.
    parsed = [tf.train.Example.FromString(row.example) for row in golden]
    assert len({one.SerializeToString(deterministic=True) for one in parsed}) == len(golden)
    of_eval = [one.features.feature for one in parsed[:50]]
    for row, example in zip(golden[51:], parsed[51:], strict=True):
        others = {
            n: v for n, v in example.features.feature.items() if f"'{n}'" not in row.description
        }
        assert any(all(one[n] == v for n, v in others.items()) for one in of_eval), row.description


def test_golden_pictures_are_small_ones_of_each_kind(tmp_path: Path) -> None:
    path = tmp_path / "data.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        example = to_example({"image": make_image(3), "label": "a"})
        writer.write(example)
    interface = ModelInterface(
        (RawColumn("image", "image", "string", False, 1, "bytes"),), "label", "string", "multiclass"
    )
    rows = choose_golden_rows([str(path)], statistics_of([example]), interface)
    assert [row.description for row in rows][:2] == [
        "row 1 of eval",
        "'image' is a picture of 1 x 1 pixels, PNG in grey",
    ]
    for row in rows:
        encoded = tf.train.Example.FromString(row.example).features.feature["image"]
        assert tf.io.decode_image(encoded.bytes_list.value[0]).shape[2] in (1, 3, 4)


def test_all_ways_of_a_model_agree(certified: Path, golden: list[GoldenRow]) -> None:
    certificate = read_certificate(certified / CERTIFICATE_PATH)
    assert certificate is not None
    assert (certificate.failure, certificate.expected_by) == ("", REFERENCE)
    assert certificate.ways.keys() == INTERFACES.keys()
    assert max(way.largest_difference for way in certificate.ways.values()) < 1e-5
    assert {"saved_model.pb", "assets.extra/inputs.json"} <= certificate.files.keys()


@pytest.mark.parametrize("tags", [[], [f"t{n}" for n in range(5)]])
def test_explanations_compare_rows_with_those_of_eval(
    certified: Path, golden: list[GoldenRow], tags: list[str], tmp_path: Path
) -> None:
    """Lists of the rows are shorter or longer than those of eval."""
    model, path = load_model(certified), tmp_path / "in.jsonl"
    row = {**make_rows(1)[0], "tags": tags}
    path.write_text(f"{json.dumps(row)}\n")
    source = Input((str(path),), "jsonl")
    explainer = Explainer.of(model, source, 5)
    (block,) = read_blocks(source, model.interface)
    answers = model.predict(
        to_request(columns_of(block, model.interface), block.first, model.interface)
    )
    explained = pa.table(explainer.explain(block, answers)).to_pylist()[0]
    of_eval = predict_raw(GoldenInputs.of(model, golden[:50]))["scores"][:, 1]
    assert len(explainer.background["fare"]) == 50
    assert explained["base"] == pytest.approx(float(of_eval.mean()), abs=float(of_eval.std()) / 4)
    total = explained["base"] + explained["others"]
    total += sum(column["share"] for column in explained["explanation"])
    assert total == pytest.approx(float(answers["scores"][0, 1]), abs=1e-6)


def test_what_is_kept_is_what_was_asked_and_answered(
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


@pytest.mark.parametrize("change", CORRUPTIONS)
def test_export_that_is_corrupt_gets_no_certificate(
    pushed: Pushed, golden: list[GoldenRow], reference: Arrays, tmp_path: Path, change: Change
) -> None:
    copy = copied(pushed.version, tmp_path, change)
    certificate = certify(copy, golden, reference, "", TOLERANCE, tmp_path)
    if change is flip_bytes:
        assert "the version is damaged" in certificate.failure
    else:
        assert f"serving_default and {REFERENCE} differ by " in certificate.failure
        assert "more than 0.001" in certificate.failure


def test_damaged_certificate_never_serves(certified: Path, tmp_path: Path) -> None:
    for name, how in ((CERTIFICATE_FILE, "is damaged"), (GOLDEN_FILE, "has changed since")):
        copy = tmp_path / name
        shutil.copytree(certified, copy)
        (copy / CERTIFICATE_PATH / name).write_text("{")
        with pytest.raises(DataError, match=f"{name} {how}"):
            load_certified(copy)
    _forget_rows(copy)  # As of an earlier release.
    with pytest.raises(DataError, match=f"{GOLDEN_FILE} is damaged"):
        load_certified(copy)


def test_version_whose_certificate_is_gone_or_rows_are_garbled_never_serves(
    certified: Path, tmp_path: Path
) -> None:
    gone = copied(certified, tmp_path / "gone", lambda v: _certificate(v).unlink())
    with pytest.raises(DataError, match=r"certificate\.json is missing"):
        load_certified(gone)
    with pytest.raises(DataError, match=rf"{GOLDEN_FILE} is missing"):
        load_certified(copied(certified, tmp_path / "rows", lambda v: _golden(v).unlink()))
    garbled = copied(certified, tmp_path / "garbled", _garble_rows)
    _forget_rows(garbled)
    with pytest.raises(DataError, match=r"a golden row is not a tf\.Example"):
        load_certified(garbled)


def _certificate(version: Path) -> Path:
    return version / CERTIFICATE_PATH / CERTIFICATE_FILE


def _golden(version: Path) -> Path:
    return version / CERTIFICATE_PATH / GOLDEN_FILE


def _forget_rows(version: Path) -> None:
    """Takes the digest of the golden rows out of a certificate."""
    content = json.loads(_certificate(version).read_text())
    del content["files"][f"{CERTIFICATE_PATH}/{GOLDEN_FILE}"]
    _certificate(version).write_text(json.dumps(content))


def _garble_rows(version: Path) -> None:
    path = _golden(version)
    rows = pq.read_table(path)
    examples = pa.array([b"\xff"] * rows.num_rows, pa.binary())
    pq.write_table(rows.set_column(rows.column_names.index("example"), "example", examples), path)


def test_differences_are_relative_and_of_equals_there_are_none() -> None:
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


def test_either_of_two_classes_that_are_as_good_as_equal_may_be_named() -> None:
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


def test_process_that_takes_too_long_says_so() -> None:
    with pytest.raises(
        TrainingError, match=r"within 0.05 s.*increase certificate.timeout to allow more"
    ):
        run_process({"limits": {}}, CertificateLimits(TOLERANCE, 0.05, 8))


def test_rows_without_a_finite_answer_are_left_out_and_said(
    pushed: Pushed, golden: list[GoldenRow], reference: Arrays, tmp_path: Path
) -> None:
    scores = reference["scores"].copy()
    scores[3] = np.nan
    holes = {**reference, "scores": scores}
    certificate = certify(pushed.version, golden, holes, "", TOLERANCE, tmp_path)
    assert (certificate.failure, certificate.rows) == ("", len(golden) - 1)
    assert certificate.notes == [
        f"1 of {len(golden)} golden rows are left out, because their predictions are not finite;"
        " the first of these rows: row 4 of eval"
    ]


def test_model_that_keras_cannot_load_is_compared_with_its_own_signature(
    pushed: Pushed, golden: list[GoldenRow], tmp_path: Path
) -> None:
    certificate = certify(pushed.version, golden, None, "Keras cannot load it", 1e-3, tmp_path)
    assert (certificate.failure, certificate.expected_by) == ("", "serving_default")
    assert certificate.notes == ["Keras cannot load it"]
