"""How many rows the files of examples have, kept beside them, so that no step loses any unseen."""

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
"""In the folder of the examples, beside the folders of the splits: rows by file."""
_READ, _WRITTEN = "scopeline.rows_read", "scopeline.rows_written"


def write_row_counts(uri: str, rows: Mapping[str, int]) -> None:
    """Keeps how many rows there are.

    Args:
      uri: the folder of the examples.
      rows: by file, `Split-train/data_tfrecord-00000-of-00001.gz`.
    """
    with fileio.open(posixpath.join(uri, ROWS_FILE), "w") as opened:
        opened.write(json.dumps(dict(sorted(rows.items()))))


def read_row_counts(files: Iterable[str]) -> dict[str, int]:
    """Returns how many rows files of examples have, of those for which it was kept."""
    kept: dict[str, dict[str, int]] = {}
    known = {}
    for file in files:
        split, name = posixpath.split(file)
        uri, split_name = posixpath.split(split)
        if uri not in kept:
            kept[uri] = _read(posixpath.join(uri, ROWS_FILE))
        rows = kept[uri].get(posixpath.join(split_name, name))
        if rows is not None:
            known[file] = rows
    return known


def _read(path: str) -> dict[str, int]:
    if not fileio.exists(path):
        return {}
    with fileio.open(path, "r") as opened:
        return dict(json.loads(opened.read()))


def count_read(file: str, rows: int) -> None:
    """Says that a step of a Beam pipeline, which calls it, has read so many more rows of a file."""
    Metrics.counter(_READ, file).inc(rows)


def count_written(folder: str, rows: int) -> None:
    """Says likewise that it has written them to the folder of a split."""
    Metrics.counter(_WRITTEN, folder).inc(rows)


def check_rows(metrics: MetricResults, reading: Mapping[str, Sequence[str]]) -> None:
    """Compares what the steps of a pipeline have counted with what there is.

    Files of which nothing is known are not compared. What is written of a split, which may be to
    several folders, has as many rows as the files of the same split that were read.

    Args:
      metrics: of the pipeline, which has ended.
      reading: by the prefix of the names of steps, the files that these had to read.

    Raises:
      InternalError: a step has read or written other rows.
    """
    every = {file for files in reading.values() for file in files}
    known = read_row_counts(every)
    read = defaultdict[str, list[tuple[str, int]]](list)
    for step, file, rows in _counters(metrics, _READ):
        read[file].append((step, rows))
    for prefix, files in reading.items():
        for file in [file for file in files if file in known]:
            found = sum(rows for step, rows in read[file] if step.startswith(prefix))
            if found != known[file]:
                there = counted(known[file], "row")
                raise lost_rows(f"{found:,} of the {there} of {file} were read")
    written = Counter[str]()
    for _, folder, rows in _counters(metrics, _WRITTEN):
        written[_name(folder)] += rows
    for split, found in written.items():
        of_split = [file for file in every if _name(posixpath.dirname(file)) == split]
        _compare(f"what was written of the split {split}", found, of_split, known)


def check_total(what: str, found: int, files: Sequence[str]) -> None:
    """Compares what a step has come to with the rows that it began with.

    Args:
      what: has counted, for the message.
      found: rows.
      files: of the examples.

    Raises:
      InternalError: it is another number.
    """
    _compare(what, found, files, read_row_counts(files))


def _compare(what: str, found: int, files: Sequence[str], known: Mapping[str, int]) -> None:
    if files and all(file in known for file in files):
        there = sum(known[file] for file in files)
        if found != there:
            raise lost_rows(f"{what} has {found:,} of {counted(there, 'row')}")


def lost_rows(what: str) -> InternalError:
    """Returns the error for rows that were there, and are not any more.

    Args:
      what: a clause that says it by numbers.
    """
    return InternalError(
        f"rows were lost between the processes of Beam: {what}. Nothing of this step is used; run"
        " again, and if that does not help, without other processes: beam.workers: 1"
    )


def _counters(metrics: MetricResults, namespace: str) -> list[tuple[str, str, int]]:
    """What was counted: the step, the name and the number."""
    found = metrics.query(MetricsFilter().with_namespace(namespace))[MetricResults.COUNTERS]
    return [(one.key.step, one.key.metric.name, one.committed) for one in found]


def _name(folder: str) -> str:
    return posixpath.basename(folder.rstrip("/"))
