"""Files of transitions, and the errors of unusable ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer_module.errors import DataError
from trainer_module.families.control.environments import EnvironmentSettings
from trainer_module.families.control.transitions import (
    collect,
    read_transitions,
    write_transitions,
)

CARTPOLE = EnvironmentSettings("gymnasium:CartPole-v1", {}, 1_000)
GOOD = {
    "observation": [[0.0, 1.0], [1.0, 2.0], [5.0, 5.0]],
    "action": [0, 1, 1],
    "reward": [1.0, 1.0, 0.0],
    "next_observation": [[1.0, 2.0], [2.0, 3.0], [6.0, 6.0]],
    "terminated": [False, False, True],
    "truncated": [False, False, False],
}


def written(folder: Path, name: str = "span-2.parquet", **changed: object) -> str:
    table = {key: value for key, value in (GOOD | changed).items() if value is not None}
    pq.write_table(pa.table(table), folder / name)
    return str(folder / name)


def test_collected_episodes_are_read_back(tmp_path: Path) -> None:
    calls = []

    def push_right(observations: np.ndarray) -> np.ndarray:
        calls.append(len(observations))
        return np.ones(len(observations), int)

    steps = collect(push_right, CARTPOLE, 3, seed=7)
    assert calls[0] == 3  # Side by side.
    write_transitions(steps, str(tmp_path / "span.parquet"))
    found = read_transitions([str(tmp_path / "span.parquet")], 4, 2)
    for name, values in vars(steps).items():
        np.testing.assert_array_equal(getattr(found, name), values)
    assert found.terminated.sum() == 3
    again = collect(push_right, CARTPOLE, 3, seed=7)
    np.testing.assert_array_equal(again.observations, steps.observations)


def test_rows_that_do_not_follow_each_other_are_truncated(tmp_path: Path) -> None:
    files = [written(tmp_path, "span-1.parquet"), written(tmp_path, terminated=[False] * 3)]
    found = read_transitions(files, 2, 2)
    assert found.terminated.tolist() == [False, False, True, False, False, False]
    assert found.truncated.tolist() == [False, True, False, False, True, True]


def test_whole_numbers_of_any_size_are_observations(tmp_path: Path) -> None:
    seconds = [[1_700_000_001 + place, 1] for place in range(3)]
    found = read_transitions([written(tmp_path, observation=seconds)], 2, 2)
    np.testing.assert_array_equal(found.observations, np.array(seconds, np.float32))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"reward": None, "truncated": None},
            "lacks the columns reward and truncated",
        ),
        (
            {"next_observation": [[1.0, 2.0], [2.0, 3.0, 4.0], [6.0, 6.0]]},
            ", row 2: column 'next_observation' has 3 numbers",
        ),
        (
            {"observation": [[0.0, 1.0], [1.0, float("nan")], [5.0, 5.0]]},
            ", row 2: column 'observation' holds nan",
        ),
        ({"reward": [1.0, None, 0.0]}, ", row 2: column 'reward' is empty"),
    ],
)
def test_unusable_file_is_named_with_row_and_column(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    files = [written(tmp_path, "span-1.parquet"), written(tmp_path, **changed)]
    with pytest.raises(DataError) as raised:
        read_transitions(files, 2, 2)
    assert str(raised.value).startswith(files[1])
    assert message in str(raised.value)


def test_truncated_file_is_named(tmp_path: Path) -> None:
    file = Path(written(tmp_path))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"span-2\.parquet is not a complete Parquet file"):
        read_transitions([str(file)], 2, 2)
