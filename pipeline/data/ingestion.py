"""Makes the settings with which ExampleGen reads a config's files, without importing TFX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.example_gen.formats import FORMATS, ExampleGenSettings, LabelsSettings, Unlabelled
from components.example_gen.paths import is_remote
from pipeline.config.sections.data import DataSettings, has_spans
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import locate_data
from pipeline.layout import Layout
from trainer_module.settings import Feature, ImageFeature, NumericFeature


@dataclass(frozen=True)
class Ingestion:
    """The settings with which ExampleGen reads the files, and the user's schema."""

    settings: ExampleGenSettings
    curated_schema: str | None
    """The path of the user's own schema, or None if the schema is inferred."""
    fingerprint: str
    """A hash of all settings that affect the examples; it does not depend on the data files."""

    @property
    def schema_revision(self) -> str:
        """A hash of the user's changes to the schema."""
        return self.settings.schema_revision


def reading_settings(config: PipelineConfig, layout: Layout) -> ExampleGenSettings:
    """Returns the settings of ExampleGen, without the hashes of code and schema."""
    return ExampleGenSettings(
        format=config.data.format,
        label=config.data.label,
        task=config.target.without_model_keys(),
        weight=config.data.weight or "",
        csv=config.data.csv,
        # Declared columns, and keys of labels, may contain both numbers and text.
        mixed_columns=(
            *(name for name, f in config.features.items() if f.may_mix or f.forms()),
            *([config.data.labels.key] if config.data.labels else ()),
        ),
        number_columns=tuple(config.columns_of(NumericFeature)),
        features={name: f for name, f in config.features.items() if f.forms()},
        pictures=_picture_folders(config.features, layout),
        encoded_pictures=_encoded_pictures(config.data.format, config.features),
        max_pixels=config.data.max_pixels,
        lags=config.data.lags,
        stratify=config.data.stratify,
        split_by=config.data.split_by or "",
        order_by=config.data.order_by or "",
        on_bad_file=config.data.on_bad_file,
        unlabelled=_unlabelled(config.data),
        may_lack_label=not config.target.needs_label
        and "label" not in config.data.model_fields_set,
        labels=_labels(config.data, layout),
        schema_file=curated_schema(config.schema_file, layout) or layout.kept_schema,
    )


def _unlabelled(data: DataSettings) -> Unlabelled:
    """Returns the reaction to rows without a label; the default for separate labels is SKIP."""
    is_set = "unlabelled" in data.model_fields_set
    return data.unlabelled if is_set or data.labels is None else Unlabelled.SKIP


def _labels(data: DataSettings, layout: Layout) -> LabelsSettings | None:
    if data.labels is None or layout.is_elsewhere:
        return data.labels
    return data.labels.model_copy(update={"path": str(Path(data.labels.path).absolute())})


def _picture_folders(features: Mapping[str, Feature], layout: Layout) -> dict[str, str]:
    """Returns the columns that contain paths of pictures, with the folder of the pictures."""
    folders = {
        name: feature.folder or ""
        for name, feature in features.items()
        if isinstance(feature, ImageFeature) and feature.origin == "path"
    }
    if layout.is_elsewhere:
        return folders
    return {
        name: str(Path(folder).absolute()) if folder and not is_remote(folder) else folder
        for name, folder in folders.items()
    }


def _encoded_pictures(data_format: str, features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Returns the columns of a table with encoded pictures, or () for image formats."""
    if FORMATS[data_format].holds_images:
        return ()
    return tuple(
        name
        for name, feature in features.items()
        if isinstance(feature, ImageFeature) and feature.origin == "bytes"
    )


def pictures_revision(data: DataSettings, folders: Mapping[str, str], layout: Layout) -> str:
    """Returns a hash of the local pictures whose paths a table contains.

    The result is empty for data in spans, as the pictures of a span do not change.

    Args:
      folders: the folders of the pictures by column; an empty string is the folder of the data.
      layout: the layout of the pipeline, whose output folders are left out of the hash.
    """
    if has_spans(data):
        return ""
    base = locate_data(data, layout).base
    named = [folder or base for folder in folders.values()]
    local = sorted({folder for folder in named if not is_remote(folder)})
    written = {str(layout.output), layout.serving}
    if not local:
        return ""
    # The import is here, as only data with pictures needs Arrow.
    from components.example_gen.picture_files import folder_revision

    return folder_revision(local, written)


def curated_schema(schema_file: str | None, layout: Layout) -> str | None:
    """Returns the absolute path of the user's schema; a path on another machine is unchanged."""
    if schema_file is None or layout.is_elsewhere or is_remote(schema_file):
        return schema_file
    return str(Path(schema_file).absolute())
