"""Batch predictions for all rows of files, in the order of the rows and in constant memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from components.disk import disk_full, is_disk_full
from components.example_gen.columns.tensors import to_request
from components.pusher.certificate import digest_files
from components.serving.batch.explaining import EXPLAINED_ROWS, Explainer
from components.serving.batch.reading import Block, Input, read_blocks
from components.serving.batch.writing import Part, Parts, check_names, exclusive_output, to_columns
from components.serving.model import Model
from components.serving.requests import EXAMPLES_INPUT, UnreadableValues, find_unreadable
from components.serving.settings import OnUnreadable
from components.serving.top_classes import keep_top_classes
from trainer_module.errors import DataError, ScopelineError, counted
from trainer_module.machine import count_cores

BATCH_ROWS = 4096
_BLOCKS_AHEAD = 2
"""The number of blocks that are predicted while an earlier block is written."""

_PendingBlock = tuple[Block, list["Future[tuple[pa.Table, list[UnreadableValues]]]"]]
"""A block, and for each slice of its rows the predictions and the texts that the model cannot
parse."""


@dataclass(frozen=True)
class PredictionJob:
    """The input, model and output of a batch prediction."""

    model: Model
    inputs: Input
    output: Path
    batch_rows: int = BATCH_ROWS
    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    explainer: Explainer | None = None
    """The explainer of the predictions, or None if they are not explained."""
    top_k: int | None = None
    """The number of classes in a prediction, or None for all classes."""

    @property
    def slice_rows(self) -> int:
        """The number of rows that a thread predicts and explains together."""
        return min(self.batch_rows, EXPLAINED_ROWS) if self.explainer else self.batch_rows

    def identity(self) -> list[object]:
        """Returns a value that identifies the job.

        A command may resume an interrupted command if their values are equal.
        """
        # Models with the same graph differ in their variables and assets.
        files = digest_files(self.model.folder)
        inputs, variant = self.inputs, self.model.variant
        network = files if variant is None else [files, variant.variant.sha256]
        folder, on_unreadable = str(self.model.folder.resolve()), self.on_unreadable
        explained = [self.explainer.shown] if self.explainer else []
        top = [] if self.top_k is None else [{"top_k": self.top_k}]
        return [
            *(folder, network, inputs.format, inputs.files, inputs.copied, on_unreadable),
            *explained,
            *top,
        ]


@dataclass(frozen=True)
class PredictionResult:
    """The result of a batch prediction."""

    rows: int
    kept: int
    """The number of rows that an earlier, interrupted command had written."""
    unreadable: dict[str, int] = field(default_factory=dict)
    """The number of texts that the model could not parse, by column. The rows of an earlier command
    are not counted."""
    missing: dict[str, int] = field(default_factory=dict)
    """The number of rows for which a past label was not known, by column; counted likewise."""


def predict(job: PredictionJob, on_progress: Callable[[int], None]) -> PredictionResult:
    """Writes the predictions for each row.

    Args:
      on_progress: a callback for the number of rows that are done.

    Raises:
      ScopelineError: rows cannot be read or written. The message has the number of kept rows.
      TryLaterError: another command writes the output.
    """
    with exclusive_output(job.output):
        return _predict_locked(job, on_progress)


def _predict_locked(job: PredictionJob, on_progress: Callable[[int], None]) -> PredictionResult:
    parts = Parts(job.output, job.identity())
    blocks = _skip_done(job, parts)
    kept, unreadable, missing = parts.rows, Counter[str](), Counter[str]()
    on_progress(kept)
    try:
        counted_blocks = _count_missing(blocks, missing)
        _predict_blocks(job, counted_blocks, parts, on_progress, unreadable)
        if not parts.rows_so_far:
            files = job.inputs.files
            raise DataError(
                f"The input has no rows ({counted(len(files), 'file')}, such as {files[0]}): name a"
                " file with rows by --input."
            )
        parts.join()
    except (ScopelineError, OSError) as error:
        with suppress(OSError):  # The disk may be full.
            parts.complete()
        raise _add_kept_rows(error, job, parts) from error
    except BaseException:
        parts.complete()
        raise
    rows = sum(part.rows for part in parts.done)
    return PredictionResult(rows, kept, dict(unreadable), dict(missing))


def _count_missing(blocks: Iterator[Block], missing: Counter[str]) -> Iterator[Block]:
    """Yields the blocks, and adds their missing past labels to `missing`."""
    for block in blocks:
        missing.update(block.missing)
        yield block


def _add_kept_rows(error: ScopelineError | OSError, job: PredictionJob, parts: Parts) -> Exception:
    if isinstance(error, OSError):
        if not is_disk_full(error):
            return error
        error = disk_full(job.output)
    if not parts.rows:
        return error
    verb = "is" if parts.rows == 1 else "are"
    return type(error)(
        f"{error} The {counted(parts.rows, 'row')} before {verb} kept in {parts.folder}: repeat the"
        " command to resume after these rows."
    )


def _skip_done(job: PredictionJob, parts: Parts) -> Iterator[Block]:
    """Returns the blocks that have not been written, and drops parts whose input rows changed."""
    while True:
        blocks = read_blocks(job.inputs, job.model.interface)
        if job.explainer:  # Explanations take long, so that blocks are written more often.
            blocks = chain.from_iterable(block.split(BATCH_ROWS) for block in blocks)
        first_changed = next(
            (i for i, part in enumerate(parts.done) if not _contains_next(blocks, part)), None
        )
        if first_changed is None:
            return blocks
        parts.keep(first_changed)


def _contains_next(blocks: Iterator[Block], part: Part) -> bool:
    """Returns whether a part contains the predictions for the next blocks."""
    rows, checksum = 0, 0
    while rows < part.rows:
        block = next(blocks, None)
        if block is None:
            return False
        rows, checksum = rows + block.count, block.checksum(checksum)
    return (rows, checksum) == (part.rows, part.checksum)


def _predict_blocks(
    job: PredictionJob,
    blocks: Iterator[Block],
    parts: Parts,
    on_progress: Callable[[int], None],
    unreadable: Counter[str],
) -> None:
    """Predicts blocks in threads, and writes their predictions in order."""
    pending: deque[_PendingBlock] = deque()
    readable, checksum = _ReadableBlocks(blocks), 0
    with ThreadPoolExecutor(count_cores()) as pool:
        try:
            for block in readable:
                starts = range(0, block.count, job.slice_rows)
                pending.append(
                    (block, [pool.submit(_predict_slice, job, block, s) for s in starts])
                )
                if len(pending) > _BLOCKS_AHEAD:
                    checksum = _write_next(
                        pending.popleft(), parts, checksum, on_progress, unreadable
                    )
                    on_progress(parts.rows_so_far)
            while pending:
                checksum = _write_next(pending.popleft(), parts, checksum, on_progress, unreadable)
            on_progress(parts.rows_so_far)
        finally:
            pool.shutdown(cancel_futures=True)
    if readable.error is not None:
        raise readable.error


class _ReadableBlocks:
    """The blocks before the first unreadable block, whose error is stored.

    All readable blocks are written before the error is raised.
    """

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self.error: ScopelineError | None = None

    def __iter__(self) -> Iterator[Block]:
        try:
            yield from self._blocks
        except ScopelineError as error:
            self.error = error


def _write_next(
    pending: _PendingBlock,
    parts: Parts,
    checksum: int,
    on_progress: Callable[[int], None],
    unreadable: Counter[str],
) -> int:
    """Writes the predictions of a block, and returns the checksum of the part in progress."""
    block, futures = pending
    results, rows = [], parts.rows_so_far
    for future in futures:
        on_progress(rows)
        results.append(future.result())
        rows += results[-1][0].num_rows
    table = pa.concat_tables([table for table, _ in results])
    for values in chain.from_iterable(unreadable_values for _, unreadable_values in results):
        unreadable[values.column] += values.count
    checksum = block.checksum(checksum)
    parts.write(table, checksum)
    if not parts.is_full:
        return checksum
    parts.complete()
    return 0


def _predict_slice(
    job: PredictionJob, block: Block, start: int
) -> tuple[pa.Table, list[UnreadableValues]]:
    """Predicts a slice of a block.

    Returns:
      A table with the copied columns and the predictions, and the texts that the model cannot
      parse.
    """
    part, interface = block.slice(start, job.slice_rows), job.model.interface
    first = part.first
    if part.rows is None:
        tensors = {EXAMPLES_INPUT: np.array(part.examples, object)}
    else:
        tensors = to_request(part.rows, first, interface)
    unreadable = find_unreadable(tensors, interface, are_examples=part.rows is None)
    if unreadable and job.on_unreadable is OnUnreadable.REFUSE:
        values = unreadable[0]
        row = first.row + values.row
        raise DataError(
            f"Column {values.column!r} is {values.text!r} in row {row} of {first.file}, expected"
            f" {values.expected}, or an empty field for a missing value."
        )
    predict_batch = job.model.predict_examples if part.rows is None else job.model.predict
    answers = predict_batch(tensors)
    columns = to_columns(keep_top_classes(answers, job.top_k), job.top_k)
    if job.explainer is not None:
        columns |= job.explainer.explain(part, answers)
    check_names(list(part.copied), columns)
    return pa.table(part.copied | columns), unreadable
