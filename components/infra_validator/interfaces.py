"""The functions that predict golden rows through each interface, and their comparison."""

from __future__ import annotations

import base64
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import requests
import uvicorn

from components.pusher.certificate import Certificate, GoldenRow, digest_files
from components.serving.batch.job import PredictionJob, predict
from components.serving.batch.reading import Input
from components.serving.batch.writing import SCORE
from components.serving.certificate import (
    GOLDEN_BATCH_ROWS,
    GoldenInputs,
    compare,
    predict_examples,
    predict_raw,
    write_certificate,
)
from components.serving.model import Model, load_model
from components.serving.requests import EXAMPLES, RAW, Arrays, join_rows
from components.serving.server.app import make_config
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.open_inference import (
    HEADER_LENGTH,
    from_tensors,
    to_tensors,
)
from components.serving.server.repository import Repository
from trainer_module.errors import DataError, ScopelineError, shorten
from trainer_module.runtime import report_part, report_step
from trainer_module.scratch import ScratchFolder

_NAME = "golden"
"""The name of the model in the server."""
_SECONDS = 600.0
"""The timeout of a request. Usually the timeout of the certification is shorter."""


@contextmanager
def run_server(model: Model) -> Iterator[str]:
    """Serves a model in a thread during a `with` block, and yields the address of the server."""
    with (
        ScratchFolder() as versions,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        repository = Repository.of(model)
        options = ServeOptions(
            _NAME, Path(versions), max_pixels=sys.maxsize, answer_seconds=_SECONDS
        )
        server = uvicorn.Server(make_config(options, repository))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def predict_rest(golden: GoldenInputs, address: str) -> Arrays:
    """Returns the predictions of TF Serving's REST API, in requests with a JSON object per row."""
    url = f"{address}/v1/models/{_NAME}:predict"
    with _session() as session:
        return join_rows([_predict(session, url, golden, part) for part in golden.slices])


def _predict(session: requests.Session, url: str, golden: GoldenInputs, part: slice) -> Arrays:
    values = {name: tensor[part].tolist() for name, tensor in golden.tensors.items()}
    names = list(values)
    rows = [
        {name: _to_json(value) for name, value in zip(names, row, strict=True)}
        for row in zip(*values.values(), strict=True)
    ]
    body = orjson.dumps({"signature_name": RAW, "instances": rows})
    answers = _read(session.post(url, body, timeout=_SECONDS)).json()["predictions"]
    outputs = golden.model.outputs
    if len(outputs) == 1:
        answers = [{next(iter(outputs)): answer} for answer in answers]
    return {
        name: _from_json([row[name] for row in answers], dtype)
        for name, (dtype, _) in outputs.items()
    }


def _to_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _from_json(values: list[Any], dtype: str) -> np.ndarray:
    """Returns an output from its JSON values, in which null stands for NaN."""
    if dtype != "string":
        return np.array(values, np.float64)
    strings = np.array(values, object)
    flat = [value.encode() for value in strings.reshape(-1).tolist()]
    return np.array(flat, object).reshape(strings.shape)


def predict_open_inference(golden: GoldenInputs, address: str) -> Arrays:
    """Returns the predictions of the Open Inference Protocol v2, in requests with binary
    tensors.
    """
    url = f"{address}/v2/models/{_NAME}/infer"
    with _session() as session:
        return join_rows([_infer(session, url, golden, part) for part in golden.slices])


def _infer(session: requests.Session, url: str, golden: GoldenInputs, part: slice) -> Arrays:
    inputs, binary_data = to_tensors(
        {name: tensor[part] for name, tensor in golden.tensors.items()}
    )
    header = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    headers = {HEADER_LENGTH: str(len(header)), "Content-Type": "application/octet-stream"}
    answer = _read(session.post(url, header + binary_data, headers=headers, timeout=_SECONDS))
    end = int(answer.headers[HEADER_LENGTH])
    return from_tensors(orjson.loads(answer.content[:end])["outputs"], answer.content[end:])


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # Requests to the same machine must not use a proxy.
    return session


def _read(answer: requests.Response) -> requests.Response:
    if answer.ok:
        return answer
    raise DataError(f"status {answer.status_code}, {shorten(answer.text)}")


REFERENCE = "transform_and_keras"
"""The name of the reference: the predictions of Transform and Keras, as in training."""


def predict_batch(golden: GoldenInputs, address: str) -> Arrays:
    """Returns the predictions of the command `predict` for a Parquet file."""
    del address
    with ScratchFolder() as scratch:
        source, output = Path(scratch) / "rows.parquet", Path(scratch) / "answers.parquet"
        pictures, table = _write_pictures(golden, Path(scratch))
        pq.write_table(table, source)
        folders = dict.fromkeys(pictures, scratch)
        rows = Input((str(source),), "parquet", pictures=folders, max_pixels=sys.maxsize)
        job = PredictionJob(golden.model, rows, output, GOLDEN_BATCH_ROWS)
        predict(job, lambda rows: None)
        table = pq.read_table(output)
    columns = {n: table.column(n).to_numpy(zero_copy_only=False) for n in table.column_names}
    return _from_columns(columns, golden.model.outputs)


def _write_pictures(golden: GoldenInputs, folder: Path) -> tuple[list[str], pa.Table]:
    """Writes the pictures of the golden rows to files.

    Returns the names of the columns that take paths, and the rows with the paths of the files.
    """
    table = golden.table()
    names = [c.name for c in golden.model.interface.columns if c.picture == "path"]
    for name in names:
        index = table.column_names.index(name)
        paths = [f"{index}-{row}" for row in range(len(table))]
        for path, encoded in zip(paths, table.column(name).to_pylist(), strict=True):
            (folder / path).write_bytes(encoded)
        table = table.set_column(index, name, pa.array(paths))
    return names, table


def _from_columns(
    columns: Arrays, outputs: dict[str, tuple[str, tuple[int | None, ...]]]
) -> Arrays:
    """Converts the columns of a table of predictions into the outputs of the model's signatures."""
    outputs_by_name: Arrays = {}
    scores = [name for name in columns if name.startswith(SCORE)]
    for name, (dtype, shape) in outputs.items():
        if name == "classes" and scores:
            labels = [label.removeprefix(SCORE).encode() for label in scores]
            outputs_by_name[name] = np.tile(np.array(labels, object), (len(columns[scores[0]]), 1))
            continue
        names = scores if name == "scores" and scores else _numbered_columns(name, columns)
        parts = [columns[part] for part in (names if len(shape) > 1 else [name])]
        values = np.stack(parts, axis=1) if len(shape) > 1 else parts[0]
        if dtype == "string":
            flat = [value.encode() for value in values.reshape(-1).tolist()]
            values = np.array(flat, object).reshape(values.shape)
        outputs_by_name[name] = values
    return outputs_by_name


def _numbered_columns(name: str, columns: Arrays) -> list[str]:
    count = sum(column.startswith(f"{name}_") for column in columns)
    return [f"{name}_{number}" for number in range(1, count + 1)]


INTERFACES: dict[str, Callable[[GoldenInputs, str], Arrays]] = {
    EXAMPLES: lambda golden, address: predict_examples(golden),
    RAW: lambda golden, address: predict_raw(golden),
    "rest": predict_rest,
    "open_inference": predict_open_inference,
    "predict": predict_batch,
}
"""The function of each interface, which returns predictions.

Its arguments are the golden rows and the address of a server of the model."""


def interfaces_of(model: Model) -> dict[str, Callable[[GoldenInputs, str], Arrays]]:
    """Returns the interfaces of a model, by name."""
    return {
        name: predict_rows
        for name, predict_rows in INTERFACES.items()
        if model.takes_examples or name != EXAMPLES
    }


def certify(
    folder: Path,
    rows: Sequence[GoldenRow],
    reference: Arrays | None,
    no_reference_reason: str,
    tolerance: float,
    certificate_folder: Path,
) -> Certificate:
    """Compares the predictions of all interfaces of a model, and writes the certificate.

    Args:
      folder: the folder of the model.
      rows: the golden rows.
      reference: the predictions of Transform and Keras. If None, the first interface is the
        reference.
      no_reference_reason: the reason why `reference` is None, or an empty string.
      tolerance: the largest allowed difference of two predictions.
      certificate_folder: the folder for the certificate.
    """
    agreements, failures = {}, []
    notes = [no_reference_reason] if no_reference_reason else []
    if reference is not None:
        rows, reference, note_on_rows = _keep_finite(rows, reference)
        notes += note_on_rows
    expected = reference
    files = digest_files(folder)
    report_step("loads the model")
    try:
        golden = GoldenInputs.of(load_model(folder), rows)
    except ScopelineError as error:
        failures.append(str(error))
    else:
        with run_server(golden.model) as address:
            interfaces = interfaces_of(golden.model)
            for number, (name, predict_rows) in enumerate(interfaces.items(), 1):
                report_part(number, len(interfaces), "interface", name)
                try:
                    predictions = predict_rows(golden, address)
                except ScopelineError as error:
                    failures.append(f"{name} fails: {error}")
                    continue
                expected = predictions if expected is None else expected
                agreements[name] = compare(expected, predictions, rows)
    expected_by = next(iter(agreements), EXAMPLES) if reference is None else REFERENCE
    failures += [
        f"{name} and {expected_by} differ by {agreement.largest_difference:.3g} in output"
        f" {agreement.output!r} of {agreement.row}, more than {tolerance:g}"
        for name, agreement in agreements.items()
        if agreement.largest_difference > tolerance
    ]
    certificate = Certificate(
        tolerance=tolerance,
        rows=len(rows),
        expected_by=expected_by,
        ways=agreements,
        notes=notes,
        failure=failures[0] if failures else "",
        files=files,
    )
    write_certificate(certificate, certificate_folder, rows, expected or {})
    return certificate


def _keep_finite(
    rows: Sequence[GoldenRow], reference: Arrays
) -> tuple[list[GoldenRow], Arrays, list[str]]:
    """Returns the rows with finite predictions, their predictions, and a note on the other rows.

    For NaN, equivalent operations of TensorFlow may have different results.
    """
    numbers = [v.reshape(len(v), -1) for v in reference.values() if v.dtype != object]
    finite = np.all([np.isfinite(values).all(axis=1) for values in numbers], axis=0)
    if finite.all():
        return list(rows), reference, []
    finite_rows = [row for row, is_finite in zip(rows, finite, strict=True) if is_finite]
    first = rows[int(np.argmin(finite))].description
    note = (
        f"{len(rows) - len(finite_rows)} of {len(rows)} golden rows are left out, because their"
        f" predictions are not finite; the first of these rows: {first}"
    )
    return finite_rows, {name: values[finite] for name, values in reference.items()}, [note]
