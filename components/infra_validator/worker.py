"""The process of a certificate: chooses the rows, asks Keras, and has all other ways asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.infra_validator.golden import choose_golden_rows
from components.infra_validator.limits import CertificateLimits
from components.infra_validator.ways import certify
from components.processes.worker import Channel, end_beyond
from components.pusher.certificate import GoldenRow
from trainer_module.errors import TrainingError
from trainer_module.export.interface import read_interface
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
    with tf.io.gfile.GFile(payload["statistics"], "rb") as file:
        statistics = file.read()
    rows = choose_golden_rows(payload["examples"], statistics, read_interface(model))
    taken, reference, why_not = ask_keras(payload, rows)
    folder = Path(payload["folder"])
    certify(model, taken, reference, why_not, limits.tolerance, folder)


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
