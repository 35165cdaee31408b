"""What example generation is told; nothing here imports TensorFlow or TFX."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ValidationInfo, field_validator

from trainer_module.settings import Settings, Task

# The feature that holds the encoded image, of image folders and IDX files.
IMAGE_FEATURE = "image"


class DataFormat(StrEnum):
    """The formats that examples are read from."""

    CSV = "csv"
    PARQUET = "parquet"
    IMAGES = "images"
    IDX = "idx"
    TFRECORD = "tfrecord"


class ExampleGenSettings(Settings):
    """How the files are read and checked; part of the component's cache key."""

    format: DataFormat
    label: str
    """The column to predict; for images and IDX the name that the label's feature gets."""
    task: Task
    mixed_columns: tuple[str, ...] = ()
    """CSV and Parquet columns that may hold numbers and text: declared categorical or ignored."""
    schema_file: str = ""
    """A schema, if it is there, whose types a CSV column keeps on days when its values would also
    do as something simpler, or are all missing."""
    schema_revision: str = ""
    """Changes when somebody edits that schema."""

    @field_validator("label")
    @classmethod
    def _no_image(cls, label: str, info: ValidationInfo) -> str:
        of_images = info.data.get("format") in (DataFormat.IMAGES, DataFormat.IDX)
        if of_images and label == IMAGE_FEATURE:
            raise ValueError(f"must not be {IMAGE_FEATURE!r}, which is the image itself")
        return label
