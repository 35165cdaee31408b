"""The row counts of example files. They are stored next to the files, to detect lost rows."""

from __future__ import annotations

import json
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricResults, MetricsFilter
from tfx.dsl.io import fileio

from trainer_module.errors import InternalError, counted

ROWS_FILE = "rows.json"
"""The file with the row counts in the folder of the examples, which contains the folders of the
splits."""
_READ, _WRITTEN = "scopeline.rows_read", "scopeline.rows_written"


def write_row_counts(uri: str, rows: Mapping[str, int]) -> None:
    """Writes the row counts of the examples.

    Args:
      rows: the number of rows of each file, such as
        `Split-train/data_tfrecord-00000-of-00001.gz`.
    """
    with fileio.open(posixpath.join(uri, ROWS_FILE), "w") as opened:
        opened.write(json.dumps(dict(sorted(rows.items()))))


def read_row_counts(files: Iterable[str]) -> dict[str, int]:
    """Returns the number of rows of example files, by file. Files without a stored count are left
    out.
    """
    stored: dict[str, dict[str, int]] = {}
    counts = {}
    for file in files:
        split, name = posixpath.split(file)
        uri, split_name = posixpath.split(split)
        if uri not in stored:
            stored[uri] = _read(posixpath.join(uri, ROWS_FILE))
        rows = stored[uri].get(posixpath.join(split_name, name))
        if rows is not None:
            counts[file] = rows
    return counts


def rows_per_split(uri: str) -> dict[str, int]:
    """Returns the stored number of rows by split, or an empty mapping if none is stored."""
    rows: Counter[str] = Counter()
    for file, count in _read(posixpath.join(uri, ROWS_FILE)).items():
        rows[posixpath.dirname(file).removeprefix("Split-")] += count
    return dict(rows)


def count_rows_of(files: Sequence[str]) -> int:
    """Returns the number of rows of example files, or 0 if the number of a file is not stored."""
    stored = read_row_counts(files)
    return sum(stored[file] for file in files) if all(file in stored for file in files) else 0


def _read(path: str) -> dict[str, int]:
    if not fileio.exists(path):
        return {}
    with fileio.open(path, "r") as opened:
        return dict(json.loads(opened.read()))


def count_read(file: str, rows: int) -> None:
    """Counts rows of a file that the calling step of a Beam pipeline has read."""
    Metrics.counter(_READ, file).inc(rows)


def count_written(folder: str, rows: int) -> None:
    """Counts rows that the calling step of a Beam pipeline has written to the folder of a split."""
    Metrics.counter(_WRITTEN, folder).inc(rows)


def check_rows(metrics: MetricResults, reading: Mapping[str, Sequence[str]]) -> None:
    """Compares the row counts of a pipeline's steps with the stored row counts.

    Files without a stored count are not compared. A split may be written to several folders; the
    sum of the written rows must equal the rows of the files that were read for the split.

    Args:
      reading: the files that steps had to read, by the prefix of the steps' names.

    Raises:
      InternalError: a step has read or written fewer or more rows.
    """
    all_files = {file for files in reading.values() for file in files}
    stored = read_row_counts(all_files)
    read = defaultdict[str, list[tuple[str, int]]](list)
    for step, file, rows in _counters(metrics, _READ):
        read[file].append((step, rows))
    for prefix, files in reading.items():
        for file in [file for file in files if file in stored]:
            found = sum(rows for step, rows in read[file] if step.startswith(prefix))
            if found != stored[file]:
                expected = counted(stored[file], "row")
                raise lost_rows_error(f"the step has read {found:,} of the {expected} of {file}")
    written = Counter[str]()
    for _, folder, rows in _counters(metrics, _WRITTEN):
        written[_name(folder)] += rows
    for split, found in written.items():
        split_files = [file for file in all_files if _name(posixpath.dirname(file)) == split]
        _compare(f"the output for the split {split}", found, split_files, stored)


def check_total(name: str, total: int, files: Sequence[str]) -> None:
    """Compares a step's total with the stored row counts.

    Raises:
      InternalError: the numbers of rows differ.
    """
    _compare(name, total, files, read_row_counts(files))


def _compare(name: str, found: int, files: Sequence[str], stored: Mapping[str, int]) -> None:
    if files and all(file in stored for file in files):
        expected = sum(stored[file] for file in files)
        if found != expected:
            raise lost_rows_error(f"{name} has {found:,} of {counted(expected, 'row')}")


def lost_rows_error(clause: str) -> InternalError:
    """Returns the error for rows that were lost.

    Args:
      clause: a clause with the expected and the found number of rows.
    """
    return InternalError(
        f"Beam lost rows between its processes: {clause}. The output of this step is discarded. Run"
        " again; if the error repeats, use one process: beam.workers: 1"
    )


def _counters(metrics: MetricResults, namespace: str) -> list[tuple[str, str, int]]:
    """Returns the step, the name and the value of each counter."""
    counters = metrics.query(MetricsFilter().with_namespace(namespace))[MetricResults.COUNTERS]
    return [(item.key.step, item.key.metric.name, item.committed) for item in counters]


def _name(folder: str) -> str:
    return posixpath.basename(folder.rstrip("/"))
