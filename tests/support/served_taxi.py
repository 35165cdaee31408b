"""Taxi trips that are requested from a served model, and what its log has of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import requests

from tests.support.project import Project
from trainer_module.export.interface import RawColumn, read_interface

ROWS_OF_A_REQUEST = 100


def ask_for(project: Project, config: Path, table: Path, rows: int, log: Path) -> list[str]:
    """Has the first rows of a table answered by `serve`, which writes a log.

    Returns:
      The label of each, in the order of the requests `trips-0`, `trips-1`, ....
    """
    with table.open() as file:
        trips = [row for row, _ in zip(csv.DictReader(file), range(rows), strict=False)]
    version = project.output / "taxi/serving/taxi" / project.versions("taxi")[-1]
    columns = read_interface(version).columns
    with project.served("--config", config, "--log-requests", log) as address:
        for number, body in enumerate(_bodies(trips, columns)):
            answer = requests.post(
                f"{address}/v1/models/taxi:predict",
                json={"inputs": body},
                headers={"X-Request-Id": f"trips-{number}"},
                timeout=60,
            )
            assert answer.ok, answer.text
    return [row["big_tipper"] for row in trips]


def _bodies(trips: list[dict[str, str]], columns: tuple[RawColumn, ...]) -> Iterator[Any]:
    for start in range(0, len(trips), ROWS_OF_A_REQUEST):
        part = trips[start : start + ROWS_OF_A_REQUEST]
        yield {c.request: [_value(row[c.name], c) for row in part] for c in columns}


def _value(text: str, column: RawColumn) -> Any:
    if column.dtype == "string":
        return text
    return float(text) if text else None


def multiply(log: Path, column: str, factor: float) -> None:
    """Adds a later file with the rows of the log, of which a column is so many times as large."""
    (file,) = log.glob("*/*.parquet")
    table = pq.read_table(file)
    place = table.schema.get_field_index(column)
    field = table.field(place)
    changed = table.set_column(place, field, pc.multiply(table[column], factor).cast(field.type))
    pq.write_table(changed, file.with_name(f"{file.name[:2]}-5959-ffffff.parquet"))
