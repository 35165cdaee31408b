"""Pure functions of our code that many tests here call are computed once for all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import user_code
from pipeline.config.settings import PipelineConfig
from pipeline.runs import provenance


@pytest.fixture(autouse=True, scope="session")
def _computed_once() -> Iterator[None]:
    """Caches the imports of our modules, which no test edits, the schema, and versions."""
    closure = functools.cache(user_code.import_closure)
    schema = functools.cache(PipelineConfig.model_json_schema)

    def cached_closure(
        roots: list[str], folder: Path, never_loads: list[str] = ()
    ) -> dict[str, Path]:
        return closure(tuple(roots), folder, tuple(never_loads))

    def cached_schema(**options: Any) -> dict[str, Any]:
        return schema() if not options else original(**options)

    original = PipelineConfig.model_json_schema
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_code, "import_closure", cached_closure)
        patch.setattr(provenance, "version", functools.cache(provenance.version))
        patch.setattr(PipelineConfig, "model_json_schema", cached_schema)
        yield


@pytest.fixture(scope="session")
def followed_imports(_computed_once: None) -> None:
    """The imports of all components have been followed."""
    from pipeline.config.loading import load_config
    from pipeline.graph.cache_keys import Recipe

    recipe = Recipe.of(load_config(Path(__file__).parents[2] / "configs" / "digits.yaml"))
    for name in ("transform_config", "trainer_config", "certificate_config"):
        getattr(recipe, name)
