"""A server of a model at a port of this machine, and clients that ask it for golden rows."""

from __future__ import annotations

import base64
import math
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import requests
import uvicorn

from components.serving.certificate.asking import GoldenRequest, join
from components.serving.model import RAW, Arrays, Model
from components.serving.server.app import make_app
from components.serving.server.connections.config import make_config
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.open_inference import HEADER_LENGTH
from components.serving.server.protocols.tensors import from_tensors, to_tensors
from components.serving.server.repository import Repository
from trainer_module.errors import DataError, shorten
from trainer_module.scratch import ScratchFolder

_NAME = "golden"
_SECONDS = 600.0
"""For a request: the certificate's own limit ends it before."""


@contextmanager
def served(model: Model) -> Iterator[str]:
    """Serves a model in a thread, in a `with` block; gives its address."""
    with (
        ScratchFolder() as versions,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        repository = Repository.of(model)
        options = ServeOptions(
            _NAME, Path(versions), max_pixels=sys.maxsize, answer_seconds=_SECONDS
        )
        server = uvicorn.Server(make_config(make_app(options, repository), options))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def ask_rest(asked: GoldenRequest, address: str) -> Arrays:
    """By TF Serving's REST API, an object a row."""
    url = f"{address}/v1/models/{_NAME}:predict"
    with _session() as session:
        return join([_predict(session, url, asked, part) for part in asked.slices])


def _predict(session: requests.Session, url: str, asked: GoldenRequest, part: slice) -> Arrays:
    values = {name: tensor[part].tolist() for name, tensor in asked.tensors.items()}
    names = list(values)
    rows = [
        {name: _to_json(value) for name, value in zip(names, row, strict=True)}
        for row in zip(*values.values(), strict=True)
    ]
    body = orjson.dumps({"signature_name": RAW, "instances": rows})
    answers = _read(session.post(url, body, timeout=_SECONDS)).json()["predictions"]
    outputs = asked.model.outputs
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
    """What JSON has of an output; null stands for NaN."""
    if dtype != "string":
        return np.array(values, np.float64)
    texts = np.array(values, object)
    flat = [value.encode() for value in texts.reshape(-1).tolist()]
    return np.array(flat, object).reshape(texts.shape)


def ask_open_inference(asked: GoldenRequest, address: str) -> Arrays:
    """By the Open Inference Protocol v2, tensors as bytes."""
    url = f"{address}/v2/models/{_NAME}/infer"
    with _session() as session:
        return join([_infer(session, url, asked, part) for part in asked.slices])


def _infer(session: requests.Session, url: str, asked: GoldenRequest, part: slice) -> Arrays:
    inputs, tail = to_tensors({n: tensor[part] for n, tensor in asked.tensors.items()})
    head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    headers = {HEADER_LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    answer = _read(session.post(url, head + tail, headers=headers, timeout=_SECONDS))
    end = int(answer.headers[HEADER_LENGTH])
    return from_tensors(orjson.loads(answer.content[:end])["outputs"], answer.content[end:])


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # No proxy is asked for the way to this machine.
    return session


def _read(answer: requests.Response) -> requests.Response:
    if answer.ok:
        return answer
    raise DataError(f"status {answer.status_code}, {shorten(answer.text)}")
