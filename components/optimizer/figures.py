"""What the model and its variants take: bytes and time."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from components.optimizer.converting.exported import load_numeric
from components.optimizer.gating import Figures
from components.processes.stopping import check_stop
from trainer_module.errors import DataError, enumerate_names
from trainer_module.export.variants.manifest import Variant, write_variant
from trainer_module.export.variants.measuring import measure, measure_in_process, save_sample
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

FLOAT_BYTES = 4
"""Of a number in float32."""


@dataclass(frozen=True)
class ModelFigures:
    """What the model itself takes."""

    figures: Figures
    measured: Mapping[str, Any]


def latency_of(measured: Mapping[str, Any]) -> float | None:
    """The median time of one example in milliseconds; None if it was not measured."""
    found = measured.get("p50_ms_batch_1")
    return None if found is None else float(found)


def why_unmeasured(variant: Variant) -> str:
    """Why a variant was not measured where it will run, in words; empty if it was."""
    if not variant.provider or latency_of(variant.measured) is not None:
        return ""
    return f"unmeasured on a GPU ({enumerate_names(variant.provider, 'and')} does not run here)"


def measure_model(saved_model: Path, sample: Mapping[str, np.ndarray]) -> ModelFigures:
    """Asks the signature that takes transformed features, as variants are asked.

    Args:
      saved_model: an exported model.
      sample: transformed examples, by feature.

    Raises:
      TrainingError: it was exported by other code than ours.
    """
    model = load_numeric(saved_model)
    weights = sum(int(np.prod(v.shape)) for v in model.function.graph.variables)
    measured = measure(model.predict, sample)
    return ModelFigures(Figures(weights * FLOAT_BYTES, latency_of(measured)), measured)


def measure_variants(
    variants: Mapping[str, Variant], folder: Path, sample: Mapping[str, np.ndarray]
) -> dict[str, Variant]:
    """Measures those that have no figures yet, each in a process that has its runtime alone.

    Args:
      variants: by name.
      folder: theirs; the figures are written to the manifests.
      sample: transformed examples, by feature.
    """
    found = dict(variants)
    with ScratchFolder() as room:
        stored = Path(room, "sample.npz")
        save_sample(sample, stored)
        for name, variant in variants.items():
            check_stop()
            if latency_of(variant.measured) is None:
                figures = _measure(variant, folder / name, stored)
                found[name] = replace(variant, measured={**variant.measured, **figures})
                write_variant(found[name], folder / name)
    return found


def _measure(variant: Variant, folder: Path, sample: Path) -> dict[str, Any]:
    """The figures of a variant; none if it cannot be asked here, which others then say.

    One that is meant for a GPU is measured by its provider alone: a CPU's figures say nothing.
    """
    providers = tuple(variant.provider)
    try:
        with ScratchFolder() as room:
            # Where engines are built, which are of no use on another GPU.
            copied = shutil.copytree(folder, Path(room, folder.name)) if providers else folder
            figures = measure_in_process(copied, sample, providers=providers)
    except DataError:
        logger.warning("Variant %s cannot be measured", folder.name, exc_info=True)
        return {}
    return {**figures, "providers": providers} if providers else figures
