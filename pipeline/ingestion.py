"""Creates the ExampleGen of a config: the location of the files, the splits and the checks."""

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
    """Returns how the files of a config are read, with the schema's revision and the code's hash.

    Args:
      reading: how the files are read, without hashes of code, schema and files.
      curated: the path of the user's own schema, if there is one.
      data: the config's section.
      layout: where the schema is stored; a schema on another machine is not read.
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
      data: the config's section.
      location: the folder and globs of the files.
      ingestion: how they are read.
      span: the span to read, in its latest version; default: the latest span.
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
    """Returns the hash buckets of the splits; empty if each split has its own files."""
    buckets = {name: value for name, value in data.splits.items() if isinstance(value, int)}
    if not buckets:
        # Even an empty split_config would mean output splits of one input.
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
