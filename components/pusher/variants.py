"""The accepted variants of a version, beside its SavedModel; needs no TFX."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from components.optimizer.report import REPORT_FILE, OptimizerReport
from trainer_module.errors import ConfigError, DamagedFileError, DataError
from trainer_module.export.variants.manifest import VARIANT_FILE, Variant, read_variant

VARIANTS_FOLDER = "variants"
"""The folder of a version that contains a folder for each variant."""
MANIFEST_FILE = "manifest.json"
"""The file beside the variants that lists them."""

_OF_A_VARIANT = ("inputs", "outputs", "classes")
"""The long fields that the manifest leaves out, as each variant's `variant.json` has them."""


def add_variants(artifact: Path, version: Path) -> None:
    """Copies the accepted variants into a version that is not in place yet.

    Args:
      artifact: the folder of the Optimizer's artifact.
      version: the folder of the version.

    Raises:
      DataError: the files of a variant differ from the accepted ones.
    """
    report = OptimizerReport.model_validate_json((artifact / REPORT_FILE).read_text())
    if not report.accepted:
        return
    target = version / VARIANTS_FOLDER
    found = {}
    for name in report.accepted:
        shutil.copytree(artifact / name, target / name)
        found[name] = read_variant(target / name)
    (target / MANIFEST_FILE).write_text(to_manifest(found))


def to_manifest(variants: Mapping[str, Variant]) -> str:
    """Returns the JSON manifest of variants: sizes, SHA-256, metrics, runtimes, `how_to_load`."""
    told = {
        name: {key: v for key, v in asdict(variant).items() if key not in _OF_A_VARIANT}
        for name, variant in variants.items()
    }
    return json.dumps({"variants": told}, indent=2) + "\n"


def read_manifest(version: Path) -> dict[str, dict[str, Any]]:
    """Returns the manifest of a version's variants, by name; empty if there are none.

    Raises:
      DamagedFileError: the manifest cannot be read.
    """
    path = version / VARIANTS_FOLDER / MANIFEST_FILE
    try:
        return dict(json.loads(path.read_text())["variants"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = f"is damaged ({type(error).__name__}: {error})"
        raise DamagedFileError.of(path, what, "push the version again.") from None


def accepted_variants(artifact: Path) -> list[str]:
    """Returns the names of the accepted variants of a model; empty if the report is missing.

    Args:
      artifact: the folder of the Optimizer's artifact.
    """
    path = artifact / REPORT_FILE
    return OptimizerReport.model_validate_json(path.read_text()).accepted if path.is_file() else []


def has_variants(version: Path, artifact: Path | None) -> bool:
    """Returns whether a version has the variants that are accepted now.

    Pusher pushes a model again if the accepted variants have changed.

    Args:
      version: the folder of a version of the model.
      artifact: the folder of the Optimizer's artifact; None if the config asks for no variants,
        which any version satisfies.
    """
    if artifact is None:
        return True
    try:
        there = {name: told["sha256"] for name, told in read_manifest(version).items()}
    except DataError:
        return False
    return there == {n: _sha256(artifact / n / VARIANT_FILE) for n in accepted_variants(artifact)}


def _sha256(manifest: Path) -> str:
    return str(json.loads(manifest.read_text())["sha256"])


def find_variant(version: Path, name: str) -> Path:
    """Returns the folder of a variant.

    Raises:
      ConfigError: the version has no such variant.
    """
    known = list(read_manifest(version))
    if name not in known:
        there = (
            f"its variants: {', '.join(known)}"
            if known
            else "it has no variants (optimize.variants)"
        )
        raise ConfigError(f"--variant {name}: version {version.name} has no such variant; {there}.")
    return version / VARIANTS_FOLDER / name
