"""Import paths that pages have users write lead to what the pages say."""

from __future__ import annotations

from importlib import import_module

import pytest


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
def test_documented_import_exists(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)
