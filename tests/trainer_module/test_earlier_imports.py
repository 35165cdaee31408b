"""What the pages of earlier versions had users import is still there."""

from __future__ import annotations

import importlib
import importlib.util

import pytest


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("trainer_module.export", "export_model"),
        ("trainer_module.features.base", "BaseFeature"),
        ("trainer_module.features.raw_columns", "dense_strings"),
        ("trainer_module.models.building", "build_model"),
        ("trainer_module.settings", "TrainerSettings"),
        ("trainer_module.strategies", "persistent"),
        ("trainer_module.strategies.tpu", "on_device"),
        ("trainer_module.trainer", "load_data"),
        ("trainer_module.trainer", "open_strategy"),
        ("trainer_module.variants.running", "open_variant"),
    ],
)
def test_an_import_of_users_code_goes_on(module: str, name: str) -> None:
    found = importlib.import_module(module)
    assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}")
