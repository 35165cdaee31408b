"""Import paths that earlier pages and pushed versions name lead where they led."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        # Of docs/your-code.md, in a `run_fn` of the user's.
        ("trainer_module.models.building:build_model", "trainer_module.trainer"),
        # In the manifest of each variant, as `how_to_load`.
        ("trainer_module.variants.running:open_variant", "trainer_module.export.variants.running"),
    ],
)
def test_an_earlier_name_is_the_same_function(earlier: str, now: str) -> None:
    module, _, name = earlier.partition(":")
    assert getattr(import_module(module), name) is getattr(import_module(now), name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("trainer_module.export", "export_model"),
        ("trainer_module.features.base", "BaseFeature"),
        ("trainer_module.features.raw_columns", "dense_strings"),
        ("trainer_module.settings", "TrainerSettings"),
        ("trainer_module.strategies.persistent", "connect"),
        ("trainer_module.strategies.tpu", "on_device"),
        ("trainer_module.trainer", "load_data"),
        ("trainer_module.trainer", "open_strategy"),
    ],
)
def test_what_pages_have_users_import_is_there(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)
