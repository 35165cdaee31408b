"""The columns that a config names besides the label, by the key that names each."""

from __future__ import annotations

from pipeline.config.settings import PipelineConfig
from trainer_module.settings import Feature, ImageFeature


def named_columns(config: PipelineConfig) -> dict[str, str]:
    """Those that the model or its evaluation uses."""
    features = {
        _key(name, column, feature): column
        for name, feature in config.features.items()
        for column in feature.columns_of(name)
    }
    if config.data.weight:
        features["data.weight"] = config.data.weight
    slices = {
        f"evaluate.slices.{i}": name
        for i, columns in enumerate(config.evaluate.slices)
        for name in columns
    }
    return features | slices


def all_named_columns(config: PipelineConfig) -> dict[str, str]:
    """Those, and the ones by which data is split or drift is measured."""
    by = {"data.split_by": config.data.split_by, "data.order_by": config.data.order_by}
    split_by = {key: name for key, name in by.items() if name}
    drift = {f"drift.columns.{name}": name for name in config.drift.columns}
    return named_columns(config) | split_by | drift


def _key(name: str, column: str, feature: Feature) -> str:
    """Of a column that a feature reads; `from: path` is easily read as the column's name."""
    if isinstance(feature, ImageFeature) and feature.origin == "path":
        return f"features.{name}, a feature that is called as the column of its paths"
    return f"features.{name}" + ("" if column == name else f" ({column})")
