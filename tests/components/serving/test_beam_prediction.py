"""`predict --runner`: Beam in this process answers as `predict` does, a file at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.beam_workers.options import IN_PROCESS_ARGS
from components.serving.batch.writing import exclusive_output
from pipeline.beam_options import beam_args
from pipeline.cli.predict import ChosenModel, PredictOptions, write_predictions
from tests.support.served_trips import Pushed
from trainer_module.errors import ConfigError, DataError, TryLaterError

Rows = list[dict[str, Any]]
FILES = 4


@pytest.fixture
def trips(rows: Rows, tmp_path: Path) -> str:
    """The glob of four files."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(FILES):
        lines = (json.dumps(row) for row in rows[number::FILES])
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    return str(folder / "*.jsonl")


def on_beam(
    pushed: Pushed,
    given: str,
    output: Path,
    args: tuple[str, ...] = IN_PROCESS_ARGS,
    top_k: int | None = None,
) -> None:
    options = PredictOptions(("trip id",), 32, top_k=top_k)
    write_predictions(ChosenModel(pushed.version), given, output, options, args)


def part(output: Path, number: int) -> Path:
    return output / f"part-{number:05}-of-{FILES:05}.parquet"


@pytest.mark.slow
def test_predictions_on_beam_equal_those_without_beam(
    pushed: Pushed, trips: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    on_beam(pushed, trips, output, top_k=1)
    assert "200 rows, version" in capfd.readouterr().out
    names = sorted(path.name for path in output.iterdir())
    assert names == [part(output, number).name for number in range(FILES)]
    options = PredictOptions(("trip id",), 32, top_k=1)
    write_predictions(ChosenModel(pushed.version), trips, tmp_path / "all.parquet", options)
    found = pa.concat_tables([pq.read_table(part(output, number)) for number in range(FILES)])
    assert found.equals(pq.read_table(tmp_path / "all.parquet"))

    with (
        exclusive_output(output),
        pytest.raises(TryLaterError, match="is being written by another"),
    ):
        on_beam(pushed, trips, output)
    with pytest.raises(
        ConfigError, match="contains files that this command did not write: give a new"
    ):
        on_beam(pushed, trips, output)


@pytest.mark.slow
def test_unreadable_file_is_named_and_the_others_are_predicted(
    pushed: Pushed, trips: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken, output = tmp_path / "in" / "2.jsonl", tmp_path / "out"
    right = broken.read_text()
    broken.write_text(right.replace('"fare": ', '"fare": "many", "old": '))
    with pytest.raises(DataError) as caught:
        on_beam(pushed, trips, output)
    assert "1 of 4 files cannot be used" in str(caught.value)
    assert f"Column 'fare' of {broken} contains text" in str(caught.value)
    assert f"The predictions for 3 files are kept in {output}" in str(caught.value)
    assert not part(output, 2).exists()
    before = part(output, 0).stat().st_mtime_ns

    broken.write_text(right)
    capfd.readouterr()
    on_beam(pushed, trips, output)
    assert "200 rows, 150 of them by an earlier command" in capfd.readouterr().out
    assert part(output, 0).stat().st_mtime_ns == before
    assert pq.read_metadata(part(output, 2)).num_rows == 50
    assert not (output / ".predict").exists()


def test_runner_takes_its_options_from_the_config() -> None:
    configured = ["--runner=SparkRunner", "--flink_master=host:8081", "--parallelism=4"]
    options = ["--runner=FlinkRunner", "--flink_master=host:8081", "--parallelism=4"]
    assert beam_args("flink", configured) == options
    assert beam_args("flink", ["--runner", "SparkRunner", *configured[1:]]) == options
    assert beam_args("config", configured) == configured
    assert beam_args("direct", configured) == list(IN_PROCESS_ARGS)
    with pytest.raises(ConfigError, match=r"the config has no `beam\.args`"):
        beam_args("config", [])
    with pytest.raises(ConfigError, match=r"--runner flnk: .*; did you mean 'flink'"):
        beam_args("flnk", [])
