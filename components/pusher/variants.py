"""The accepted variants in a version. The module imports no TFX."""

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
"""The folder, in a version, that contains a folder for each variant."""
MANIFEST_FILE = "manifest.json"
"""The file with the list of variants, in the folder of the variants."""

_OMITTED_FIELDS = ("inputs", "outputs", "classes")
"""The fields that are not in the manifest, because they are long and in each `variant.json`."""


def add_variants(artifact: Path, version: Path) -> None:
    """Copies the accepted variants into a version that servers do not see yet.

    Args:
      artifact: the folder of the Optimizer's artifact.

    Raises:
      DataError: the files of a variant differ from the accepted files.
    """
    report = OptimizerReport.model_validate_json((artifact / REPORT_FILE).read_text())
    if not report.accepted:
        return
    target = version / VARIANTS_FOLDER
    variants = {}
    for name in report.accepted:
        shutil.copytree(artifact / name, target / name)
        variants[name] = read_variant(target / name)
    (target / MANIFEST_FILE).write_text(to_manifest(variants))


def to_manifest(variants: Mapping[str, Variant]) -> str:
    """Returns the manifest of variants as JSON: sizes, SHA-256, metrics, runtimes,
    `how_to_load`.
    """
    entries = {
        name: {key: value for key, value in asdict(variant).items() if key not in _OMITTED_FIELDS}
        for name, variant in variants.items()
    }
    return json.dumps({"variants": entries}, indent=2) + "\n"


def read_manifest(version: Path) -> dict[str, dict[str, Any]]:
    """Returns the manifest's entry of each variant of a version, or {} if there are no variants.

    Raises:
      DamagedFileError: the manifest cannot be read.
    """
    path = version / VARIANTS_FOLDER / MANIFEST_FILE
    try:
        return dict(json.loads(path.read_text())["variants"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = f"is damaged ({type(error).__name__}: {error})"
        raise DamagedFileError.of(path, problem, "push the version again.") from None


def accepted_variants(artifact: Path) -> list[str]:
    """Returns the names of the accepted variants, or an empty list if there is no report."""
    path = artifact / REPORT_FILE
    return OptimizerReport.model_validate_json(path.read_text()).accepted if path.is_file() else []


def has_variants(version: Path, artifact: Path | None) -> bool:
    """Returns whether the variants of a version equal the accepted variants.

    If not, the Pusher pushes the model again.

    Args:
      artifact: the folder of the Optimizer's artifact, or None if the config has no variants: then
        the result is True.
    """
    if artifact is None:
        return True
    try:
        pushed = {name: entry["sha256"] for name, entry in read_manifest(version).items()}
    except DataError:
        return False
    return pushed == {
        name: _sha256(artifact / name / VARIANT_FILE) for name in accepted_variants(artifact)
    }


def _sha256(manifest: Path) -> str:
    return str(json.loads(manifest.read_text())["sha256"])


def find_variant(version: Path, name: str) -> Path:
    """Returns the folder of a variant in a version.

    Raises:
      ConfigError: the version does not have the variant.
    """
    names = list(read_manifest(version))
    if name not in names:
        available = (
            f"give one of {', '.join(names)}"
            if names
            else "no variants were pushed with it (optimize.variants)"
        )
        raise ConfigError(
            f"--variant {name}: version {version.name} does not have this variant; {available}."
        )
    return version / VARIANTS_FOLDER / name
