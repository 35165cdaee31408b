"""The process of a certificate: chooses the rows, asks Keras, and has all other ways asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.infra_validator.golden import choose_edges, choose_golden_rows, to_example
from components.infra_validator.limits import CertificateLimits
from components.infra_validator.ways import certify
from components.processes.worker import Channel, end_beyond
from components.pusher.certificate import GoldenRow
from components.serving.requests import join_rows
from trainer_module.errors import TrainingError
from trainer_module.export.interface import read_interface
from trainer_module.sections import load_own
from trainer_module.settings import TrainerSettings

_AT_ONCE = 32
"""Rows, which may be pictures."""


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Writes the certificate; see `CertifyingExecutor` for what the payload says."""
    limits = CertificateLimits.from_json(payload["limits"])
    too_large = TrainingError(
        f"the model needs more than {limits.memory:g} GiB to answer: a server would as well;"
        " certificate.memory allows more."
    )
    end_beyond(limits.memory * 2**30, too_large, channel)
    model = Path(payload["model"])
    rows = _choose_rows(payload, model)
    if "transform_graph" in payload:
        taken, reference, why_not = ask_keras(payload, rows)
    else:
        taken, reference, why_not = rows, None, ""
    folder = Path(payload["folder"])
    certify(model, taken, reference, why_not, limits.tolerance, folder)


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
    return taken, join_rows(answers), ""
