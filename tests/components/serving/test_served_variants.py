"""Variants that answer: in place of the network, and by themselves without TensorFlow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import requests
import tensorflow as tf
import tritonclient.http as triton

from components.optimizer.converting.conversion import convert
from components.pusher.variants import MANIFEST_FILE, VARIANTS_FOLDER, to_manifest
from components.serving.model import FeatureColumn, Model, load_model, load_transformed
from components.serving.requests import Arrays
from components.serving.server.options import ServeOptions, check_options
from components.serving.server.protocols.open_inference import (
    check_tensors,
    read_request,
    to_tensors,
)
from components.serving.server.protocols.values import from_rows, to_array, to_arrays
from components.serving.server.replies import RequestError
from tests.support.served_trips import Pushed
from tests.support.servers import free_port, running, serve_process, wait_until_ready
from trainer_module import scratch
from trainer_module.errors import ConfigError, DataError
from trainer_module.export.interface import ModelInterface, RawColumn
from trainer_module.export.variants.manifest import VARIANT_FILE, read_variant

Rows = list[dict[str, Any]]
NAMES = ("float", "onnx")
PICTURE = FeatureColumn("photo", "photo", "float32", False, 6, shape=(3, 2, 1))


@pytest.fixture(scope="module")
def features(pushed: Pushed, model: Model, asked: Rows) -> Arrays:
    """What Transform makes of the rows."""
    columns = to_arrays(from_rows(asked, model.interface), model.interface)
    transform = tf.saved_model.load(str(pushed.version)).signatures["serving_raw_transform"]
    found = transform(**{name: tf.constant(values) for name, values in columns.items()})
    return {name: tensor.numpy() for name, tensor in found.items()}


@pytest.fixture(scope="module")
def serving(pushed: Pushed, features: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a version that has variants."""
    serving = tmp_path_factory.mktemp("variants") / "trips"
    variants = serving / pushed.version.name / VARIANTS_FOLDER
    shutil.copytree(pushed.version, variants.parent)
    for name in NAMES:
        (variants / name).mkdir(parents=True)
        convert(name, pushed.version, features, variants / name)
    made = {name: read_variant(variants / name) for name in NAMES}
    (variants / MANIFEST_FILE).write_text(to_manifest(made))
    return serving


@contextmanager
def started(
    versions: Path, log: Path, *options: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The command `serve`, once it is ready; gives its address. Its scratch is beside the log."""
    port = free_port()
    with serve_process(log, port, "--model", versions, *options, TMPDIR=str(log.parent)) as process:
        wait_until_ready(port, process)
        yield f"127.0.0.1:{port}", process


@contextmanager
def run_server(serving: Path, log: Path, *options: str) -> Iterator[tuple[str, int]]:
    """The same, up to SIGTERM, after which it ends well; gives its address and its process."""
    with started(serving, log, *options) as (address, process):
        yield address, process.pid
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


def second_scores(answer: requests.Response) -> list[float]:
    assert answer.ok, answer.text
    return [row["scores"][1] for row in answer.json()["predictions"]]


@pytest.mark.parametrize("name", NAMES)
def test_variant_answers_columns_in_place_of_the_network(
    serving: Path, asked: Rows, name: str
) -> None:
    body, answers = {"instances": asked}, []
    for variant in (None, name):
        with running(ServeOptions("trips", serving, variant=variant)) as address:
            url = f"{address}/v1/models/trips:predict"
            answers.append(second_scores(requests.post(url, json=body, timeout=60)))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_variant_answers_features_without_tensorflow(
    serving: Path, model: Model, asked: Rows, features: Arrays, name: str, tmp_path: Path
) -> None:
    right = model.predict(to_arrays(from_rows(asked, model.interface), model.interface))
    options = ("--variant", name, "--transformed")
    with run_server(serving, tmp_path / "log", *options) as (address, process):
        url = f"http://{address}/v1/models/trips:predict"
        lists = {feature: values.tolist() for feature, values in features.items()}
        by_column = requests.post(url, json={"inputs": lists}, timeout=60).json()["outputs"]
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        by_row = requests.post(url, json={"instances": rows}, timeout=60)
        with triton.InferenceServerClient(address) as client:
            described = client.get_model_metadata("trips")
            inputs = [to_input(given, features) for given in described["inputs"]]
            by_tensor = client.infer("trips", inputs)
        refused = requests.post(url, json={"instances": [{"b64": "AA=="}]}, timeout=60)
        counted = requests.get(f"http://{address}/metrics", timeout=60).text
        libraries = Path(f"/proc/{process}/maps").read_text()
    assert described["platform"] == {"float": "litert_tflite", "onnx": "onnxruntime_onnx"}[name]
    assert [given["shape"] for given in described["inputs"]] == [
        [-1, *features[given["name"]].shape[1:]] for given in described["inputs"]
    ]
    for scores in (by_column["scores"], by_tensor.as_numpy("scores")):
        np.testing.assert_allclose(scores, right["scores"], atol=1e-5)
    np.testing.assert_allclose(second_scores(by_row), right["scores"][:, 1], atol=1e-5)
    assert refused.status_code == 400
    assert "takes transformed features (area, " in refused.json()["error"]
    assert "use a server that was started without --transformed" in refused.json()["error"]
    totals = re.findall(r"^scopeline_predictions_total\{.*\} (.*)$", counted, re.MULTILINE)
    assert sum(map(float, totals)) == 3 * len(asked)
    # Whoever imports TensorFlow has mapped its library.
    assert {"float": "ai_edge_litert", "onnx": "onnxruntime"}[name] in libraries
    assert "tensorflow" not in libraries.replace("ai_edge_litert/", "")


def to_input(given: dict[str, Any], features: Arrays) -> triton.InferInput:
    values = features[given["name"]]
    tensor = triton.InferInput(given["name"], list(values.shape), given["datatype"])
    tensor.set_data_from_numpy(values)
    return tensor


def test_features_of_several_dimensions_keep_their_shape() -> None:
    photo = np.arange(12, dtype=np.float32).reshape(2, 3, 2, 1)
    np.testing.assert_array_equal(to_array(photo.tolist(), PICTURE), photo.reshape(2, 6))
    with pytest.raises(RequestError, match=r"'photo' of row 1 does not have the shape \[3, 2, 1\]"):
        to_array([photo[0].tolist(), photo[0, :2].tolist()], PICTURE)
    interface = ModelInterface((PICTURE,), "y", "string", "binary")
    given = {"name": "photo", "datatype": "FP32", "data": photo.ravel().tolist()}

    def read(shape: list[int]) -> Arrays:
        body = json.dumps({"inputs": [{**given, "shape": shape}]}).encode()
        return read_request(body, len(body), interface, "trips", 1)[1]

    columns = read([2, 3, 2, 1])
    np.testing.assert_array_equal(columns["photo"], photo.reshape(2, 6))
    with pytest.raises(RequestError, match=r"\[2, 6\], expected \['rows', 3, 2, 1\]"):
        read([2, 6])


def test_descriptions_of_requests_that_are_refused_are_not_kept() -> None:
    interface = ModelInterface((RawColumn("fare", "fare", "float32", False, 1),))
    given = {"shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
    tracemalloc.start()
    try:
        for place in range(64):
            inputs = [{"name": f"unknown {place}", **given}]
            head = json.dumps({"inputs": inputs, "more": [{}] * 4000}).encode()
            with pytest.raises(RequestError, match="unknown"):
                read_request(head + bytes(4), len(head), interface, "trips", 1)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1 << 20


def test_tensors_are_read_alike_whether_their_description_was_seen_or_not() -> None:
    fare = FeatureColumn("fare", "fare", "float32", False, 1, shape=(1,))
    place = FeatureColumn("place", "place", "int64", True, 1, shape=(1,))
    interface = ModelInterface((fare, place, PICTURE), "y", "string", "binary")
    generator = np.random.default_rng(1)

    def read(body: bytes, end: int, of: ModelInterface = interface) -> Arrays:
        return read_request(body, end, of, "trips", 1)[1]

    for rows in (4, 7, 4, 4):
        given = {
            "photo": generator.random((rows, 3, 2, 1), np.float32),
            "place": generator.integers(0, 9, (rows, 1), np.int32),  # Narrower than it is taken.
            "fare": generator.random((rows, 1), np.float32),
        }
        inputs, tail = to_tensors(given)
        head = json.dumps({"inputs": inputs}).encode()
        found = read(head + tail, len(head))
        np.testing.assert_array_equal(found["photo"], given["photo"].reshape(rows, 6))
        np.testing.assert_array_equal(found["place"], given["place"][:, 0])
        assert (found["place"].dtype, found["fare"].flags.aligned) == (np.int64, True)
    with pytest.raises(RequestError, match="'fare' has fewer bytes than its binary_data_size"):
        read(head + tail[:-1], len(head))
    with pytest.raises(RequestError, match="2 bytes after the last input"):
        read(head + tail + b"12", len(head))
    # The next version may ask for others.
    with pytest.raises(RequestError, match="'photo', which the model does not take"):
        read(head + tail, len(head), ModelInterface((fare, place), "y", "string", "binary"))


@pytest.mark.parametrize(
    ("value", "is_right"),
    [(2.0, True), (np.nan, True), (2.5, False), (1e300, False), (-np.inf, False)],
)
def test_numbers_of_tensors_that_have_to_be_whole_are(value: float, is_right: bool) -> None:
    hour = RawColumn("hour", "hour", "float64", True, 1)
    interface = ModelInterface((hour,), "y", "string", "binary")
    tensors = {"hour": np.array([value])}
    if is_right:
        check_tensors(tensors, interface)
    else:
        with pytest.raises(RequestError, match="input 'hour' "):
            check_tensors(tensors, interface)


def test_variant_with_other_classes_than_its_version_is_refused(
    serving: Path, tmp_path: Path
) -> None:
    (version,) = serving.iterdir()
    copy = tmp_path / version.name
    shutil.copytree(version, copy)
    path = copy / VARIANTS_FOLDER / "onnx" / VARIANT_FILE
    content = json.loads(path.read_text())
    content["classes"].reverse()
    path.write_text(json.dumps(content))
    for load in (load_transformed, load_model):
        with pytest.raises(DataError, match=r"the variant onnx of .* has the classes 1, 0"):
            load(copy, "onnx")


def test_options_that_do_not_go_together_are_refused(serving: Path) -> None:
    with pytest.raises(ConfigError, match="--transformed serves a variant: add --var"):
        check_options(ServeOptions("trips", serving, transformed=True), is_insecure=False)


def test_stop_while_a_version_loads_answers_what_has_come(serving: Path, tmp_path: Path) -> None:
    """TensorFlow loads in a thread that nothing can stop: the process does not wait for it."""
    versions = tmp_path / "trips"
    shutil.copytree(serving, versions)
    log = tmp_path / "log"
    with run_server(versions, log) as (address, _):
        newest = shutil.copytree(next(serving.iterdir()), tmp_path / "next")
        weights = newest / "variables" / "variables.data-00000-of-00001"
        weights.unlink()
        os.mkfifo(weights)  # As slow as can be: nothing is ever written to it.
        newest.rename(versions / "9999999999")
        until = time.monotonic() + 30
        while "version 9999999999 is being loaded" not in log.read_text():
            assert time.monotonic() < until
            time.sleep(0.005)
        # `served` sends SIGTERM now, and asserts the exit code.
        assert requests.get(f"http://{address}/v2/health/ready", timeout=10).ok
    assert "version 9999999999 is in service" not in log.read_text()


def test_workers_whose_parent_is_killed_end_and_what_it_left_goes(
    serving: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--variant", "onnx", "--transformed", "--workers", "2")
    with started(serving, tmp_path / "log", *options) as (_, process):
        workers = psutil.Process(process.pid).children()
        (left,) = tmp_path.glob(f"{scratch.PREFIX}*")
        assert list(left.glob("*.db")), "the metrics of the workers"
        process.kill()
        process.wait(60)
        _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    assert left.is_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch.ScratchFolder():
        assert not left.exists()
