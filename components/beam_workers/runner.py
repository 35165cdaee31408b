"""Beam's runner in this process, with workers that are forks of it where that pays."""

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
from components.compat.beam import listen_here_alone
from components.row_counts import check_rows
from components.spreading import SpreadFiles
from trainer_module.errors import counted
from trainer_module.machine import count_cores, free_memory

logger = logging.getLogger(__name__)

_BYTES = 32 << 20
"""Of files, for each process: below that, starting one takes longer than it saves."""
_MEMORY = 1 << 30
"""Bytes that a process may take beside what it shares with this one: models, batches, sums."""
_LOOKED_AT = 100
"""Files whose sizes are asked for; of more these are a sample, as a store far away takes long."""
_GPUS = "/dev/nvidia[0-9]*"


def choose_workers(work: Sequence[SpreadFiles], most: Workers = AUTO) -> int:
    """Returns how many processes; 1 is this one alone.

    Args:
      work: what a pipeline begins with.
      most: as many as are asked for, where there are cores and elements for them; AUTO for as many
        as pay and find memory.
    """
    elements = max((len(one.elements) for one in work), default=1)
    fitting = min(elements, count_cores())
    if most != AUTO:
        return max(1, min(most, fitting))
    # A GPU asks models faster than cores do, and is one process's.
    if fitting == 1 or (any(one.asks_models for one in work) and glob.glob(_GPUS)):
        return 1
    by_bytes = sum(_size(one.files) for one in work) // _BYTES
    return max(1, min(fitting, by_bytes, free_memory() // _MEMORY))


def note_cores(workers: Workers) -> list[str]:
    """What people should know who ask for more processes than this machine has cores for.

    Args:
      workers: as the config has it.
    """
    cores = count_cores()
    if workers == AUTO or workers <= cores:
        return []
    has = counted(cores, "core")
    return [f"beam.workers: {workers}, and this machine has {has}: more would be slower"]


def _size(files: Sequence[str]) -> int:
    """Bytes of all files, judged by some of many."""
    looked_at = files[:: math.ceil(len(files) / _LOOKED_AT) or 1]
    return sum(map(_size_of, looked_at)) * len(files) // max(1, len(looked_at))


def _size_of(file: str) -> int:
    """Bytes of a file; none of one that has just been deleted, of which its reader will tell."""
    try:
        return int(fileio.stat(file).length)
    except fileio.NotFoundError:
        return 0


class WorkersRunner(FnApiRunner):
    """Starts as many as `at_most` lets it; what a pipeline reads says how many pay: `SpreadFiles`.

    Every row that a pipeline counts is compared with what the examples are known to have.
    """

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        """Runs it to its end.

        Raises:
          InternalError: rows were lost.
          RuntimeError: a worker failed; its cause is the error of the worker.
          Exception: as a step has raised it in this process.
        """
        direct = options.view_as(DirectOptions)
        found = _FindWork()
        pipeline.visit(found)
        workers = choose_workers(found.work, most_workers())
        # Of no mode of Beam's, each of which has processes of its own.
        direct.direct_running_mode, direct.direct_num_workers = None, workers
        environment = None
        if workers > 1:
            logger.info("%d processes share the work", workers)
            listen_here_alone()
            environment = ForkedWorkers(workers)
        try:
            result = FnApiRunner(environment).run_pipeline(pipeline, options)
        except RuntimeError as error:
            cause = find_cause(error)
            if cause is None:
                raise
            raise RuntimeError(str(error)) from cause
        check_rows(result.metrics(), found.reading)
        return result


class _FindWork(PipelineVisitor):
    """Collects what a pipeline begins with."""

    def __init__(self) -> None:
        self.work: list[SpreadFiles] = []
        self.reading: dict[str, list[str]] = {}
        """By the prefix of the steps that read and count them, the files."""

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        transform = transform_node.transform
        if isinstance(transform, SpreadFiles):
            if transform.is_counted:
                prefix = transform_node.full_label.rpartition("/")[0]
                self.reading.setdefault(prefix, []).extend(transform.files)
            self.work.append(transform)
