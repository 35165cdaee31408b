"""Makes the ExampleGen of a config: where the files are, how they split, how they are checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen.component import ArrowExampleGen
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.paths import is_remote
from components.schema_gen import schema_revision
from pipeline.config.settings import DataSettings, PipelineConfig
from pipeline.data.location import locate_data
from pipeline.layout import Layout

EXAMPLE_GEN = "ExampleGen"
"""The component's id: stock names would follow the class."""


def make_example_gen(
    config: PipelineConfig, layout: Layout, span: int | None = None
) -> ArrowExampleGen:
    """The component that reads the config's data.

    Args:
      config: a checked config.
      layout: where shipped data is unpacked.
      span: the span to read, in its latest version; default: the latest span there is.

    Raises:
      DataError: no local file matches the path.
    """
    base, patterns = locate_data(config.data, layout)
    component = ArrowExampleGen(
        settings=_settings(config, layout),
        input_base=base,
        input_config=example_gen_pb2.Input(
            splits=[
                example_gen_pb2.Input.Split(name=name, pattern=p) for name, p in patterns.items()
            ]
        ),
        output_config=_output_config(config.data),
        range_config=None if span is None else _only(span),
    )
    return component.with_id(EXAMPLE_GEN)


def ingestion_fingerprint(config: PipelineConfig, layout: Layout) -> str:
    """Changes with what decides how files become examples, but for the files."""
    settings = _settings(config, layout).model_dump_json()
    return hashlib.sha256(f"{settings} {config.data.model_dump_json()}".encode()).hexdigest()[:16]


def curated_schema(config: PipelineConfig, layout: Layout) -> str | None:
    """The path of the user's own schema; as the config has it where the files are elsewhere."""
    if config.schema_file is None or layout.is_elsewhere or is_remote(config.schema_file):
        return config.schema_file
    return str(Path(config.schema_file).absolute())


def read_revision(config: PipelineConfig, layout: Layout) -> str:
    """What a user wrote into the schema; empty where the files are not here to be looked at."""
    if layout.is_elsewhere:
        return ""
    return schema_revision(curated_schema(config, layout), layout.kept_schema)


def _settings(config: PipelineConfig, layout: Layout) -> ExampleGenSettings:
    return ExampleGenSettings(
        format=config.data.format,
        label=config.data.label,
        task=config.task,
        # Where the config says what a column is, it may hold numbers and text.
        mixed_columns=tuple(name for name, f in config.features.items() if f.may_mix),
        schema_file=curated_schema(config, layout) or layout.kept_schema,
        schema_revision=read_revision(config, layout),
    )


def _only(span: int) -> range_config_pb2.RangeConfig:
    return range_config_pb2.RangeConfig(
        static_range=range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
    )


def _output_config(data: DataSettings) -> example_gen_pb2.Output:
    """Hash buckets per split; empty where every split has files of its own."""
    buckets = {name: value for name, value in data.splits.items() if isinstance(value, int)}
    by_column = {"partition_feature_name": data.split_by} if data.split_by else {}
    return example_gen_pb2.Output(
        split_config=example_gen_pb2.SplitConfig(
            splits=[
                example_gen_pb2.SplitConfig.Split(name=n, hash_buckets=b)
                for n, b in buckets.items()
            ],
            **by_column,
        )
    )
