"""The component in a pipeline: the stock driver's spans, versions and caching hold, and hours."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest
import tensorflow as tf
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2, range_config_pb2

from components.beam_workers.options import IN_PROCESS_ARGS
from components.example_gen.component import ArrowExampleGen, Driver
from components.example_gen.formats import ExampleGenSettings

Execution: TypeAlias = metadata_store_pb2.Execution


def write_span(folder: Path, span: int, rows: int) -> None:
    """Writes a span's folder with that many rows."""
    path = folder / f"span-{span}" / "data.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["label,x", *(f"{i % 2},{i}" for i in range(rows))]))


def run(root: Path, data: Path, label: str = "label") -> None:
    """Runs a pipeline of the component alone over the latest span."""
    example_gen = ArrowExampleGen(
        ExampleGenSettings(format="csv", label=label, task="binary", mixed_columns=("a", "b")),
        input_base=str(data),
        input_config=example_gen_pb2.Input(
            splits=[example_gen_pb2.Input.Split(name="all", pattern="span-{SPAN}/*.csv")]
        ),
    )
    LocalDagRunner().run(
        Pipeline(
            pipeline_name="spans",
            pipeline_root=str(root / "pipeline_root"),
            components=[example_gen],
            enable_cache=True,
            beam_pipeline_args=list(IN_PROCESS_ARGS),
            metadata_connection_config=metadata.sqlite_metadata_connection_config(
                str(root / "metadata.db")
            ),
        )
    )


def read_store(root: Path) -> tuple[list[Execution], list[metadata_store_pb2.Artifact]]:
    """The executions and artifacts so far, oldest first."""
    config = metadata.sqlite_metadata_connection_config(str(root / "metadata.db"))
    with metadata.Metadata(config) as handle:
        executions = handle.store.get_executions_by_type(
            "components.example_gen.component.ArrowExampleGen"
        )
        return executions, handle.store.get_artifacts_by_type("Examples")


def count_rows(artifact: metadata_store_pb2.Artifact) -> int:
    """Rows in all splits."""
    shards = [str(path) for path in Path(artifact.uri).glob("Split-*/*")]
    return sum(1 for _ in tf.data.TFRecordDataset(shards, "GZIP"))


@pytest.mark.slow
def test_latest_span_is_read_once_and_then_cached(tmp_path):
    data = tmp_path / "data"
    write_span(data, 1, 30)
    write_span(data, 2, 40)
    run(tmp_path, data)
    run(tmp_path, data)
    executions, (artifact,) = read_store(tmp_path)
    assert [e.last_known_state for e in executions] == [Execution.COMPLETE, Execution.CACHED]
    assert artifact.custom_properties["span"].int_value == 2
    assert artifact.properties["split_names"].string_value == '["train", "eval"]'
    assert artifact.custom_properties["payload_format"].string_value == "FORMAT_TF_EXAMPLE"
    assert artifact.custom_properties["file_format"].string_value == "tfrecords_gzip"
    assert count_rows(artifact) == 40
    assert sorted(path.name for path in Path(artifact.uri).iterdir()) == [
        "Split-eval",
        "Split-train",
        "rows.json",
    ]

    write_span(data, 3, 50)
    run(tmp_path, data)
    executions, artifacts = read_store(tmp_path)
    assert executions[-1].last_known_state == Execution.COMPLETE
    assert artifacts[-1].custom_properties["span"].int_value == 3
    assert count_rows(artifacts[-1]) == 50


HOUR = 20454 * 24 + 8
"""The 1st of January 2026, at 8."""


def choose(
    folder: Path, patterns: dict[str, str], span: int | None
) -> tuple[int, int | None, list[str]]:
    """The span, its version and the globs that the executor is given."""
    splits = [example_gen_pb2.Input.Split(name=n, pattern=p) for n, p in patterns.items()]
    only = range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
    chosen = range_config_pb2.RangeConfig(static_range=only) if span is not None else None
    processor = Driver(None).get_input_processor(splits, chosen, str(folder))
    span, version = processor.resolve_span_and_version()
    assert processor.get_input_fingerprint(span, version)
    globs = [processor.get_pattern_for_span_version(p, span, version) for p in patterns.values()]
    return span, version, globs


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a\n1\n")


def test_configured_hour_is_resolved(tmp_path):
    write(tmp_path, "2026-01-01/08-1.csv", "2026-01-01/09-1.csv", "2026-01-02/08-1.csv")
    found = choose(tmp_path, {"all": "{YYYY}-{MM}-{DD}/{HH}-*.csv"}, HOUR)
    assert found == (HOUR, None, ["2026-01-01/08-*.csv"])


def test_latest_version_of_the_hour_is_resolved_in_every_split(tmp_path):
    for split in ("train", "eval"):
        write(tmp_path, *(f"20260101/08/v{n}/{split}.csv" for n in (2, 10)))
        write(tmp_path, f"20260101/09/v11/{split}.csv")
    pattern = "{YYYY}{MM}{DD}/{HH}/v{VERSION}/"
    found = choose(tmp_path, {"a": f"{pattern}train.csv", "b": f"{pattern}eval.csv"}, HOUR)
    assert found == (HOUR, 10, ["20260101/08/v10/train.csv", "20260101/08/v10/eval.csv"])


def test_hourly_pattern_without_a_span_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\{HH\}"):
        choose(tmp_path, {"all": "{YYYY}-{MM}-{DD}/{HH}.csv"}, None)
