"""The formats that examples are read from, by name."""

from __future__ import annotations

from components.example_gen.formats import DataFormat, ExampleGenSettings
from components.example_gen.sources.base import Source
from components.example_gen.sources.csv_source import CsvSource
from components.example_gen.sources.idx_source import IdxSource
from components.example_gen.sources.images_source import ImagesSource
from components.example_gen.sources.parquet_source import ParquetSource
from components.example_gen.sources.tfrecord_source import TFRecordSource

_SOURCES: dict[DataFormat, type[Source]] = {
    DataFormat.CSV: CsvSource,
    DataFormat.PARQUET: ParquetSource,
    DataFormat.IMAGES: ImagesSource,
    DataFormat.IDX: IdxSource,
    DataFormat.TFRECORD: TFRecordSource,
}


def make_source(settings: ExampleGenSettings) -> Source:
    """The source of the settings' format."""
    return _SOURCES[settings.format](settings)
