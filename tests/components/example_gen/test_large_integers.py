"""Integers of 64 bits: kept where they are integers, rounded where the column has fractions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from components.example_gen.columns.encoded import ColumnKind, encode_typed

LARGE = 1782218195625938945


def test_large_integers_become_the_nearest_floats() -> None:
    column = encode_typed("x", pa.array([LARGE, 1, None]), ColumnKind.FLOAT, "t.parquet")
    assert column.to_pylist() == [[float(np.float32(LARGE))], [1.0], None]


@pytest.mark.parametrize("nulls", [0, 3])
def test_json_lines_with_ids_of_19_digits_are_read(tmp_path: Path, generate, nulls: int) -> None:
    lines = [{"id": LARGE + n, "x": n, "label": n % 2} for n in range(40)]
    lines += [{"id": None, "x": n, "label": n % 2} for n in range(nulls)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    examples = [one for split in generate(tmp_path, "jsonl").values() for one in split]
    assert len(examples) == 40 + nulls
    exact = generate(tmp_path, "jsonl", mixed_columns=("id",))
    features = [one.features.feature for split in exact.values() for one in split]
    assert {value for one in features for value in one["id"].int64_list.value} == {
        LARGE + n for n in range(40)
    }


def test_a_fraction_of_zero_is_a_whole_number_in_csv() -> None:
    from components.example_gen.columns.type_inference import encode_text

    cells = pa.array([b"6.0", b" 7. ", b"8", b"-9.00", None, b"NA"], pa.binary())
    column = encode_text(cells, ColumnKind.INT)
    assert column.to_pylist() == [[6], [7], [8], [-9], None, None]
    with pytest.raises(pa.ArrowInvalid):
        encode_text(pa.array([b"6.0", b"6.5"], pa.binary()), ColumnKind.INT)
