"""Creates the ExampleGen of a config."""

from __future__ import annotations

import hashlib

from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen.component import ArrowExampleGen
from components.example_gen.formats import ExampleGenSettings
from components.schema_gen.files import schema_revision
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import DataSettings
from pipeline.config.user_code import MODELS, code_fingerprint
from pipeline.data.files import DataLocation, label_files, revision_of
from pipeline.data.ingestion import Ingestion, pictures_revision
from pipeline.layout import Layout

_EXECUTOR = "components.example_gen.executor"


def resolve_ingestion(
    reading: ExampleGenSettings, curated: str | None, data: DataSettings, layout: Layout
) -> Ingestion:
    """Returns the ingestion of a config, with hashes of the code, the schema and the files.

    Args:
      reading: the settings of ExampleGen without these hashes.
      curated: the path of the user's own schema, or None if the schema is inferred.
      layout: the layout of the pipeline; files on another machine are not read.
    """
    is_here = not layout.is_elsewhere
    settings = reading.model_copy(
        update={
            "schema_revision": (schema_revision(curated, layout.kept_schema) if is_here else ""),
            "pictures_revision": pictures_revision(data, reading.pictures, layout)
            if is_here
            else "",
            "labels_revision": (revision_of(label_files(data)) if is_here else ""),
            "code": code_fingerprint([_EXECUTOR], never_loads=MODELS),
        }
    )
    text = f"{settings.model_dump_json()} {data.model_dump_json()}"
    return Ingestion(settings, curated, hashlib.sha256(text.encode()).hexdigest()[:16])


def make_example_gen(
    data: DataSettings, location: DataLocation, ingestion: Ingestion, span: int | None = None
) -> ArrowExampleGen:
    """Returns the component that reads the data.

    Args:
      span: the number of the span to read; default: all data of a config without spans.
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
        range_config=None if span is None else _range_of(span),
    )
    return component.with_id(ComponentId.EXAMPLE_GEN.value)


def _range_of(span: int) -> range_config_pb2.RangeConfig:
    return range_config_pb2.RangeConfig(
        static_range=range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
    )


def _output_config(data: DataSettings) -> example_gen_pb2.Output:
    """Returns the hash buckets of the splits; an empty message if the splits are globs."""
    buckets = {name: value for name, value in data.splits.items() if isinstance(value, int)}
    if not buckets:
        # TFX would split one input even for an empty `split_config`.
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
