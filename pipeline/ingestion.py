"""Makes the ExampleGen of a config: where the files are, how they split, how they are checked."""

from __future__ import annotations

import hashlib

from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen.component import ArrowExampleGen
from components.schema_gen.files import schema_revision
from pipeline.component_ids import ComponentId
from pipeline.config.fingerprint import MODELS, code_fingerprint
from pipeline.config.settings import DataSettings, PipelineConfig
from pipeline.data.ingestion import (
    Ingestion,
    curated_schema,
    pictures_revision,
    reading_settings,
)
from pipeline.data.location import DataLocation
from pipeline.data.span_files import label_files, revision_of
from pipeline.layout import Layout

_EXECUTOR = "components.example_gen.executor"


def resolve_ingestion(config: PipelineConfig, layout: Layout) -> Ingestion:
    """Reads the schema's revision, and says how the files of a config are read.

    Args:
      config: a checked config.
      layout: where the schema is kept; where its files are elsewhere, the schema is not looked at.
    """
    curated = curated_schema(config, layout)
    settings = reading_settings(config, layout).model_copy(
        update={
            "schema_revision": (
                "" if layout.is_elsewhere else schema_revision(curated, layout.kept_schema)
            ),
            "pictures_revision": "" if layout.is_elsewhere else pictures_revision(config, layout),
            "labels_revision": (
                "" if layout.is_elsewhere else revision_of(label_files(config.data))
            ),
            "code": code_fingerprint([_EXECUTOR], never_loads=MODELS),
        }
    )
    text = f"{settings.model_dump_json()} {config.data.model_dump_json()}"
    return Ingestion(settings, curated, hashlib.sha256(text.encode()).hexdigest()[:16])


def make_example_gen(
    data: DataSettings, location: DataLocation, ingestion: Ingestion, span: int | None = None
) -> ArrowExampleGen:
    """The component that reads the data.

    Args:
      data: the config's section.
      location: where the files are.
      ingestion: how they are read.
      span: the span to read, in its latest version; default: the latest span there is.
    """
    component = ArrowExampleGen(
        settings=ingestion.settings,
        input_base=location.base,
        input_config=example_gen_pb2.Input(
            splits=[
                example_gen_pb2.Input.Split(name=name, pattern=pattern)
                for name, pattern in location.patterns.items()
            ]
        ),
        output_config=_output_config(data),
        range_config=None if span is None else _only(span),
    )
    return component.with_id(ComponentId.EXAMPLE_GEN.value)


def _only(span: int) -> range_config_pb2.RangeConfig:
    return range_config_pb2.RangeConfig(
        static_range=range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
    )


def _output_config(data: DataSettings) -> example_gen_pb2.Output:
    """Hash buckets per split; empty where every split has files of its own."""
    buckets = {name: value for name, value in data.splits.items() if isinstance(value, int)}
    if not buckets:
        # Even an empty split_config would be taken for output splits of one input.
        return example_gen_pb2.Output()
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
