"""What the model and its variants take: bytes and time."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from components.optimizer.converting.exported import load_numeric
from components.optimizer.gating import Figures
from components.stopping import check_stop
from trainer_module.variants.manifest import Variant, write_variant
from trainer_module.variants.measuring import measure

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
"""Where our code is, for a process of its own."""

FLOAT_BYTES = 4
"""Of a number in float32."""


@dataclass(frozen=True)
class ModelFigures:
    """What the model itself takes."""

    figures: Figures
    measured: Mapping[str, Any]


def latency_of(measured: Mapping[str, Any]) -> float | None:
    """The median time of one example in milliseconds; None if it was not measured."""
    found = measured.get("batch_1")
    return None if found is None else float(found["p50_ms"])


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
    found = {}
    for name, variant in variants.items():
        check_stop()
        found[name] = variant
        if latency_of(variant.measured) is None and (
            figures := _measure(variant, folder / name, sample)
        ):
            found[name] = replace(variant, measured={**variant.measured, **figures})
            write_variant(found[name], folder / name)
    return found


def _measure(variant: Variant, folder: Path, sample: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The figures of a variant; none where its process fails, which its evaluation then tells."""
    with tempfile.TemporaryDirectory(prefix="scopeline-") as room:
        stored = Path(room, "sample.npz")
        rows: dict[str, Any] = {f"{i}": sample[t.name] for i, t in enumerate(variant.inputs)}
        np.savez(stored, **rows)
        command = [sys.executable, "-m", "trainer_module.variants.measuring", folder, stored]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, cwd=ROOT, check=False
        )
    if done.returncode:
        logger.warning("Variant %s cannot be measured: %s", folder.name, done.stderr)
        return {}
    return dict(json.loads(done.stdout))
