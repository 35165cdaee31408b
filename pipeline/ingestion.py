"""Makes the ExampleGen of a config: where the files are, and how they split."""

from __future__ import annotations

import os
from pathlib import Path

from tfx.components import CsvExampleGen
from tfx.dsl.components.base import base_component
from tfx.proto import example_gen_pb2

from pipeline.builtin_data import BUILTIN_DATA
from pipeline.config import BUILTIN_PREFIX, DataSettings, PipelineConfig
from pipeline.layout import Layout

WILDCARDS = "*?[{"


def make_example_gen(config: PipelineConfig, layout: Layout) -> base_component.BaseComponent:
    base, pattern = data_location(config.data, layout)
    return CsvExampleGen(input_base=base, input_config=input_config(config.data, pattern), output_config=output_config(config.data))


def data_location(data: DataSettings, layout: Layout) -> tuple[str, str]:
    if data.path.startswith(BUILTIN_PREFIX):
        path = str(BUILTIN_DATA[data.path.removeprefix(BUILTIN_PREFIX)].locate(layout.builtin))
    else:
        path = data.path
    return os.path.split(path)

def input_config(data, pattern):
    return example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern=pattern)])

def output_config(data):
    S=example_gen_pb2.SplitConfig
    return example_gen_pb2.Output(split_config=S(splits=[S.Split(name=n,hash_buckets=b) for n,b in data.splits.items()]))
