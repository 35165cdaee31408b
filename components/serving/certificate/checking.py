"""Whether a version still is what was certified: asked before it serves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from components.infra_validator.certificate import (
    CERTIFICATE_PLACE,
    check_certified_files,
    read_certificate,
)
from components.serving.certificate.asking import GoldenRequest, ask_examples, ask_raw
from components.serving.certificate.comparing import compare
from components.serving.certificate.record import read_golden
from components.serving.model import Model, load_model
from components.serving.transformed import TransformedModel, load_transformed
from trainer_module.errors import DataError


def load_certified(version: Path, variant: str | None = None) -> Model:
    """Loads a version that still is what was certified; one without a certificate is taken as is.

    Args:
      version: its folder.
      variant: what answers in its place. Its file has to be what was accepted, and it need not
        answer as the model does.

    Raises:
      ConfigError: the version has no such variant.
      DataError: it has changed, cannot be loaded, or answers otherwise.
    """
    check_certified_files(version)  # First: changed bytes may end the process that loads them.
    model = load_model(version, variant)
    check_answers(replace(model, variant=None))
    return model


def load_certified_variant(version: Path, variant: str) -> TransformedModel:
    """Loads a variant alone of a version whose files are those that were certified.

    What the SavedModel answers is not asked, as that would take TensorFlow.

    Raises:
      ConfigError: the version has no such variant.
      DataError: it has changed, or cannot be loaded.
    """
    check_certified_files(version)
    return load_transformed(version, variant)


def check_answers(model: Model) -> None:
    """Raises DataError for a model that does not answer what its certificate says."""
    folder = model.folder / CERTIFICATE_PLACE
    certificate = read_certificate(folder)
    if certificate is None:
        return
    rows, expected = read_golden(folder)
    asked = GoldenRequest.of(model, rows)
    for ask in (ask_raw, ask_examples) if model.takes_examples else (ask_raw,):
        apart = compare(expected, ask(asked), rows)
        if apart.largest_difference > certificate.tolerance:
            raise DataError(
                f"{model.folder} does not answer as its certificate says:"
                f" {apart.output!r} of {apart.row} is {apart.largest_difference:.3g} apart from"
                f" what it was, more than {certificate.tolerance:g}."
            )
