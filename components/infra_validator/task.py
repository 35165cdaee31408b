"""The process of a certificate: chooses the rows, asks Keras, and has all other ways asked."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from components.infra_validator.golden import choose_edges, choose_golden_rows, to_example
from components.infra_validator.limits import CertificateLimits
from components.infra_validator.rows import GoldenRow
from components.processes.child import Channel
from components.processes.failures import describe
from trainer_module.errors import TrainingError
from trainer_module.export.interface import read_interface
from trainer_module.own_code import load_own
from trainer_module.settings import TrainerSettings

_LOOK_SECONDS = 0.1
_AT_ONCE = 32
"""Rows, which may be pictures."""


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Writes the certificate; see `CertifyingExecutor` for what the payload says."""
    limits = CertificateLimits.from_json(payload["limits"])
    _limit_memory(limits.memory, channel)
    model = Path(payload["model"])
    rows = _choose_rows(payload, model)
    if "transform_graph" in payload:
        taken, reference, why_not = ask_keras(payload, rows)
    else:
        taken, reference, why_not = rows, None, ""
    ways = importlib.import_module(payload["ways"])
    folder = Path(payload["folder"])
    ways.certify(model, taken, reference, why_not, limits.tolerance, folder)


def _choose_rows(payload: dict[str, Any], model: Path) -> list[GoldenRow]:
    """Those of the model's family, those of the examples, or the columns at their edges."""
    interface = read_interface(model)
    if path := payload["golden_rows"]:
        choose = load_own("the golden rows of the task's family", path)
        return [
            GoldenRow(says, to_example(values, interface))
            for says, values in choose(model, payload["custom_config"])
        ]
    if "examples" not in payload:
        return choose_edges(interface)
    with tf.io.gfile.GFile(payload["statistics"], "rb") as file:
        statistics = file.read()
    return choose_golden_rows(payload["examples"], statistics, interface)


def ask_keras(
    payload: dict[str, Any], rows: Sequence[GoldenRow]
) -> tuple[list[GoldenRow], dict[str, np.ndarray] | None, str]:
    """The rows that the model takes, what Transform and Keras answer, and why they do not."""
    from trainer_module.export.reference import KerasReference

    settings = TrainerSettings.from_custom_config(payload["custom_config"])
    try:
        reference = KerasReference(payload["model"], payload["transform_graph"], settings)
    except TrainingError as error:
        return list(rows), None, str(error)
    taken: list[GoldenRow] = []
    answers = []
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        for batch in (some, *([row] for row in some)):
            try:
                answers.append(reference.answer([row.example for row in batch]))
            except tf.errors.InvalidArgumentError:
                continue  # One of them cannot be transformed: each by itself.
            taken += batch
            if batch is some:
                break
    joined = {name: np.concatenate([a[name] for a in answers]) for name in answers[0]}
    return taken, joined, ""


def _limit_memory(limit: float, channel: Channel) -> None:
    """Ends this process once it has more than that."""
    process = psutil.Process()

    def watch() -> None:
        while process.memory_info().rss <= limit * 2**30:
            stop.wait(_LOOK_SECONDS)
        error = TrainingError(
            f"the model needs more than {limit:g} GiB to answer: a server would as well;"
            " certificate.memory allows more."
        )
        channel.send("error", **describe(error))
        os._exit(1)

    stop = threading.Event()
    threading.Thread(target=watch, name="memory", daemon=True).start()
