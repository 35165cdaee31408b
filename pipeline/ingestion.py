"""Makes the ExampleGen of a config: where the files are, how they split, how they are checked."""

from __future__ import annotations

from pathlib import Path

from tfx.proto import example_gen_pb2

from components.example_gen.component import ArrowExampleGen
from components.example_gen.paths import check_files_exist, is_remote, resolve_input
from components.example_gen.settings import ExampleGenSettings
from pipeline.builtin_data import BUILTIN_DATA
from pipeline.config import BUILTIN_PREFIX, DataSettings, PipelineConfig
from pipeline.layout import Layout
from trainer_module.settings import CategoricalFeature, IgnoredFeature

ALL_FILES = "all"
"""The one input split, where hash buckets make the output splits."""

_Input, _Output, _SplitConfig = (
    example_gen_pb2.Input,
    example_gen_pb2.Output,
    example_gen_pb2.SplitConfig,
)


def make_example_gen(config: PipelineConfig, layout: Layout) -> ArrowExampleGen:
    """The component that reads the config's data.

    Raises:
      DataError: no local file matches the path.
    """
    data = config.data
    path = data_path(data, layout)
    if all(isinstance(value, str) for value in data.splits.values()):
        base = path.rstrip("/")
        patterns = {name: str(value) for name, value in data.splits.items()}
    else:
        base, pattern = resolve_input(path, data.format)
        patterns = {ALL_FILES: pattern}
    for pattern in patterns.values():
        check_files_exist(base, pattern)
    component = ArrowExampleGen(
        settings=ExampleGenSettings(
            format=data.format,
            label=data.label,
            task=config.task,
            mixed_columns=_mixed_columns(config),
        ),
        input_base=base,
        input_config=_Input(
            splits=[_Input.Split(name=name, pattern=p) for name, p in patterns.items()]
        ),
        output_config=_output_config(data),
    )
    return component.with_id("ExampleGen")


def data_path(data: DataSettings, layout: Layout) -> str:
    """Where the data is: shipped data is unpacked, and a local path becomes absolute."""
    if data.path.startswith(BUILTIN_PREFIX):
        builtin = BUILTIN_DATA[data.path.removeprefix(BUILTIN_PREFIX)]
        return str(builtin.locate(layout.builtin))
    return data.path if is_remote(data.path) else str(Path(data.path).absolute())


def _output_config(data: DataSettings) -> _Output:
    """Hash buckets per split; empty where every split has files of its own."""
    buckets = {name: value for name, value in data.splits.items() if isinstance(value, int)}
    return _Output(
        split_config=_SplitConfig(
            splits=[_SplitConfig.Split(name=n, hash_buckets=b) for n, b in buckets.items()]
        )
    )


def _mixed_columns(config: PipelineConfig) -> tuple[str, ...]:
    """Columns that may hold numbers and text, because the config says what they are."""
    declared = (CategoricalFeature, IgnoredFeature)
    return tuple(name for name, f in config.features.items() if isinstance(f, declared))
