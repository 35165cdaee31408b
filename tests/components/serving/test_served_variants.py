"""Variants that answer: in place of the network, and by themselves without TensorFlow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
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
    read_request,
)
from components.serving.server.protocols.values import from_rows, to_array, to_arrays
from components.serving.server.replies import RequestError
from tests.support.served_trips import Pushed
from tests.support.servers import free_port, running, serve_process, wait_until_ready
from trainer_module import scratch
from trainer_module.errors import ConfigError, DataError
from trainer_module.export.interface import ModelInterface
from trainer_module.export.variants.manifest import VARIANT_FILE, read_variant

Rows = list[dict[str, Any]]
NAMES = ("float", "onnx")
PICTURE = FeatureColumn("photo", "photo", "float32", False, 6, shape=(3, 2, 1))


@pytest.fixture(scope="module")
def features(pushed: Pushed, model: Model, instances: Rows) -> Arrays:
    """What Transform makes of the rows."""
    columns = to_arrays(from_rows(instances, model.interface), model.interface)
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


@pytest.mark.slow
def test_variant_answers_as_the_network(serving: Path, instances: Rows) -> None:
    body, answers = {"instances": instances}, []
    for variant in (None, "float"):
        with running(ServeOptions("trips", serving, variant=variant)) as address:
            url = f"{address}/v1/models/trips:predict"
            answers.append(second_scores(requests.post(url, json=body, timeout=60)))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx"])
def test_variant_answers_transformed_features_without_tensorflow(
    serving: Path, model: Model, instances: Rows, features: Arrays, name: str, tmp_path: Path
) -> None:
    right = model.predict(to_arrays(from_rows(instances, model.interface), model.interface))
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
    assert sum(map(float, totals)) == 3 * len(instances)
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


@pytest.mark.slow
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


def test_transformed_without_a_variant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--transformed serves a variant: add --var"):
        check_options(ServeOptions("trips", tmp_path, transformed=True), is_insecure=False)


@pytest.mark.slow
def test_workers_end_with_a_killed_parent(
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
