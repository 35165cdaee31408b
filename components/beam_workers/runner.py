"""Beam's runner in this process, with workers that are forks of it if they save time."""

from __future__ import annotations

import glob
import logging
import math
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from tfx.dsl.io import fileio

from components.beam_workers.options import AUTO, Workers, most_workers
from components.beam_workers.processes import ForkedWorkers, find_cause
from components.compat.beam import listen_on_loopback
from components.row_counts import check_rows
from components.spreading import SpreadFiles
from trainer_module.errors import counted
from trainer_module.machine import count_cores, free_memory

logger = logging.getLogger(__name__)

_BYTES = 32 << 20
"""The bytes of files for each process; with fewer, starting a process takes longer than it
saves."""
_MEMORY = 1 << 30
"""The bytes that a process may need beside the memory that it shares with this one: models,
batches, sums."""
_LOOKED_AT = 100
"""The number of files whose sizes are read; larger sets are sampled, as remote stores are slow."""
_GPUS = "/dev/nvidia[0-9]*"


def choose_workers(work: Sequence[SpreadFiles], most: Workers = AUTO) -> int:
    """Returns the number of processes for a pipeline; 1 is this one alone.

    Args:
      work: the files that the pipeline begins with.
      most: the number of processes, limited by cores and elements; AUTO for as many as save time
        and fit into memory.
    """
    elements = max((len(one.elements) for one in work), default=1)
    fitting = min(elements, count_cores())
    if most != AUTO:
        return max(1, min(most, fitting))
    # A model on a GPU predicts faster than models on several cores; a GPU serves one process.
    if fitting == 1 or (any(one.asks_models for one in work) and glob.glob(_GPUS)):
        return 1
    by_bytes = sum(_size(one.files) for one in work) // _BYTES
    return max(1, min(fitting, by_bytes, free_memory() // _MEMORY))


def note_cores(workers: Workers) -> list[str]:
    """Returns a note if the config sets more processes than this machine has cores.

    Args:
      workers: the config's setting.
    """
    cores = count_cores()
    if workers == AUTO or workers <= cores:
        return []
    core_count = counted(cores, "core")
    return [
        f"beam.workers: {workers}, but this machine has {core_count}: more processes than cores are"
        " slower"
    ]


def _size(files: Sequence[str]) -> int:
    """Returns the bytes of all files, estimated from a sample of many files."""
    sample = files[:: math.ceil(len(files) / _LOOKED_AT) or 1]
    return sum(map(_size_of, sample)) * len(files) // max(1, len(sample))


def _size_of(file: str) -> int:
    """Returns the bytes of a file; 0 for a file that no longer exists, which its reader will
    report.
    """
    try:
        return int(fileio.stat(file).length)
    except fileio.NotFoundError:
        return 0


class WorkersRunner(FnApiRunner):
    """Beam's runner with at most `at_most` processes; `SpreadFiles` in the pipeline determines
    their number.

    The number of rows that a pipeline reads is compared with the stored row counts of the examples.
    """

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        """Runs a pipeline to its end.

        Raises:
          InternalError: rows were lost.
          RuntimeError: a worker failed; the cause is the worker's error.
          Exception: the error of a step in this process.
        """
        direct = options.view_as(DirectOptions)
        finder = _FindWork()
        pipeline.visit(finder)
        workers = choose_workers(finder.work, most_workers())
        # Beam's own modes would start processes of their own.
        direct.direct_running_mode, direct.direct_num_workers = None, workers
        environment = None
        if workers > 1:
            logger.info("Beam runs in %d processes", workers)
            listen_on_loopback()
            environment = ForkedWorkers(workers)
        try:
            result = FnApiRunner(environment).run_pipeline(pipeline, options)
        except RuntimeError as error:
            cause = find_cause(error)
            if cause is None:
                raise
            raise RuntimeError(str(error)) from cause
        check_rows(result.metrics(), finder.reading)
        return result


class _FindWork(PipelineVisitor):
    """A visitor that collects the files that a pipeline begins with."""

    def __init__(self) -> None:
        self.work: list[SpreadFiles] = []
        self.reading: dict[str, list[str]] = {}
        """The files, by the prefix of the steps that read and count them."""

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        transform = transform_node.transform
        if isinstance(transform, SpreadFiles):
            if transform.is_counted:
                prefix = transform_node.full_label.rpartition("/")[0]
                self.reading.setdefault(prefix, []).extend(transform.files)
            self.work.append(transform)
