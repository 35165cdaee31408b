"""Pure functions of our code that many tests here call are computed once for all of them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import user_code
from pipeline.config.settings import PipelineConfig
from pipeline.own_modules import ROOT
from pipeline.runs import provenance

_original_closure = user_code.import_closure
_closure = functools.cache(_original_closure)
_schema = functools.cache(PipelineConfig.model_json_schema)
_version = functools.cache(provenance.version)


def _cached_closure(
    roots: list[str], folder: Path, never_loads: Sequence[str] = ()
) -> dict[str, Path]:
    if folder != ROOT:
        return _original_closure(roots, folder, never_loads)
    return dict(_closure(tuple(roots), folder, tuple(never_loads)))


def _cached_schema(**options: Any) -> dict[str, Any]:
    return _original_schema(**options) if options else copy.deepcopy(_schema())


_original_schema = PipelineConfig.model_json_schema


@pytest.fixture(autouse=True, scope="module")
def _computed_once() -> Iterator[None]:
    """Caches the imports of our modules, which no test edits, the schema, and versions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_code, "import_closure", _cached_closure)
        patch.setattr(provenance, "version", _version)
        patch.setattr(PipelineConfig, "model_json_schema", _cached_schema)
        yield


@pytest.fixture(scope="module")
def followed_imports(_computed_once: None) -> None:
    """The imports of all components have been followed."""
    from pipeline.config.loading import load_config
    from pipeline.graph.cache_keys import Recipe

    recipe = Recipe.of(load_config(Path(__file__).parents[2] / "configs" / "digits.yaml"))
    for name in ("transform_config", "trainer_config", "certificate_config"):
        getattr(recipe, name)
