"""Runs the real executor on files made by a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from components.beam_workers.options import IN_PROCESS_ARGS
from components.example_gen.executor import Executor, pack_settings
from components.example_gen.formats import CsvSettings, ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_gen.sources.surveys import merge_surveys
from components.user_errors import find_user_error
from tests.support.quick_beam import speed_up_beam
from trainer_module.errors import DataError

SPLITS = {"train": 2, "eval": 1}


def _exec_properties(
    folder: Path, splits: dict[str, Any], pattern: str, by: str | None, settings: ExampleGenSettings
) -> dict[str, Any]:
    inputs, outputs = example_gen_pb2.Input(), example_gen_pb2.Output()
    if all(isinstance(share, int) for share in splits.values()):
        inputs.splits.add(name="all", pattern=pattern)
        for name, share in splits.items():
            outputs.split_config.splits.add(name=name, hash_buckets=share)
        if by:
            outputs.split_config.partition_feature_name = by
    else:
        for name, glob in splits.items():
            inputs.splits.add(name=name, pattern=glob)
    return {
        "input_base": str(folder),
        "input_config": proto_utils.proto_to_json(inputs),
        "output_config": proto_utils.proto_to_json(outputs),
        "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
        "output_file_format": example_gen_pb2.FORMAT_TFRECORDS_GZIP,
        "custom_config": proto_utils.proto_to_json(pack_settings(settings)),
    }


@pytest.fixture
def execute(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., standard_artifacts.Examples]:
    """Runs an ExampleGen executor's `Do`; returns the artifact."""
    speed_up_beam(monkeypatch)

    def run(
        folder: Path,
        data_format: str = "csv",
        *,
        splits: dict[str, Any] = SPLITS,
        pattern: str = "*",
        by: str | None = None,
        executor: type[BaseBeamExecutor] = Executor,
        label: str = "label",
        task: str = "multiclass",
        mixed_columns: tuple[str, ...] = (),
        whole_columns: tuple[str, ...] = (),
        **settings: Any,
    ) -> standard_artifacts.Examples:
        settings = ExampleGenSettings(
            format=data_format,
            label=label,
            task=task,
            mixed_columns=(*mixed_columns, *whole_columns),
            **settings,
        )
        examples = standard_artifacts.Examples()
        examples.uri = str(tmp_path_factory.mktemp("examples"))
        context = BaseBeamExecutor.Context(
            beam_pipeline_args=list(IN_PROCESS_ARGS),
            tmp_dir=str(tmp_path_factory.mktemp("beam")),
        )
        properties = _exec_properties(folder, splits, pattern, by, settings)
        executor(context).Do({}, {"examples": [examples]}, properties)
        return examples

    return run


@pytest.fixture
def read_split() -> Callable[..., list[bytes]]:
    """Reads the serialized examples of a split of an artifact, in the order of its shards."""

    def read(examples: standard_artifacts.Examples, split: str) -> list[bytes]:
        shards = sorted(str(path) for path in Path(examples.uri, f"Split-{split}").iterdir())
        return list(tf.data.TFRecordDataset(shards, "GZIP").as_numpy_iterator())

    return read


@pytest.fixture
def generate(execute, read_split) -> Callable[..., dict[str, list[tf.train.Example]]]:
    """Runs the executor; returns the examples by split."""

    def run(folder: Path, *args: Any, **kwargs: Any) -> dict[str, list[tf.train.Example]]:
        examples = execute(folder, *args, **kwargs)
        return {
            split: [tf.train.Example.FromString(e) for e in read_split(examples, split)]
            for split in kwargs.get("splits", SPLITS)
        }

    return run


@pytest.fixture
def refusal(execute) -> Callable[..., str]:
    """Runs the executor on bad data; returns the message of the DataError behind what it raises."""

    def run(folder: Path, *args: Any, **kwargs: Any) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Beam may have wrapped it
            execute(folder, *args, **kwargs)
        error = find_user_error(caught.value)
        assert isinstance(error, DataError), caught.value
        return str(error)

    return run


@pytest.fixture
def read_rows() -> Callable[..., list[dict[str, Any]]]:
    """Reads a folder with a source, without Beam; rows as dicts of lists of values."""

    def run(
        folder: Path,
        data_format: str = "csv",
        *,
        pattern: str = "*",
        label: str = "label",
        task: str = "multiclass",
        mixed_columns: tuple[str, ...] = (),
        whole_columns: tuple[str, ...] = ("row",),
        schema_file: str = "",
        csv: CsvSettings = CsvSettings(),  # noqa: B008
    ) -> list[dict[str, Any]]:
        settings = ExampleGenSettings(
            format=data_format,
            label=label,
            task=task,
            mixed_columns=(*mixed_columns, *whole_columns),
            schema_file=schema_file,
            csv=csv,
        )
        source = make_source(settings)
        groups = source.plan(sorted(str(file) for file in folder.glob(pattern)))
        kinds = merge_surveys([source.survey(files) for files in groups], settings)
        batches = [batch for files in groups for batch in source.read(files, kinds)]
        rows = [row for batch in batches for row in batch.rows.to_pylist()]
        return [{name: values or [] for name, values in row.items()} for row in rows]

    return run


@pytest.fixture
def read_error(read_rows) -> Callable[..., str]:
    """Reads bad data with a source; returns the message of its DataError."""

    def run(folder: Path, *args: Any, **kwargs: Any) -> str:
        with pytest.raises(DataError) as caught:
            read_rows(folder, *args, **kwargs)
        return str(caught.value)

    return run
