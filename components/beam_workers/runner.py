"""Beam's runner in this process, with forks of this process as workers if they save time."""

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

from components.beam_workers.options import AUTO, Workers, max_workers
from components.beam_workers.processes import ForkedWorkers, find_cause
from components.compat.beam import listen_on_loopback
from components.row_counts import check_rows, count_rows_of
from components.row_progress import report_rows
from components.spreading import SpreadFiles
from trainer_module.errors import counted
from trainer_module.machine import count_cores, free_memory

logger = logging.getLogger(__name__)

_PROCESS_BYTES = 32 << 20
"""The size of the files for each process, in bytes. With smaller files, the start of a process
takes longer than the process saves."""
_PROCESS_MEMORY = 1 << 30
"""The bytes that a process may need for models, batches and sums, in addition to the memory that
all processes share."""
_SAMPLE_FILES = 100
"""The maximum number of files whose sizes are read, as remote stores are slow."""
_GPUS = "/dev/nvidia[0-9]*"


def choose_workers(reads: Sequence[SpreadFiles], limit: Workers = AUTO) -> int:
    """Returns the number of processes for a pipeline. With 1 the pipeline runs in this process.

    Args:
      limit: the number of processes, which the numbers of cores and elements limit further. AUTO
        chooses the number that saves time and fits into memory.
    """
    elements = max((len(step.elements) for step in reads), default=1)
    fitting = min(elements, count_cores())
    if limit != AUTO:
        return max(1, min(limit, fitting))
    # A model on a GPU predicts faster than models on several cores; a GPU serves one process.
    if fitting == 1 or (any(step.runs_models for step in reads) and glob.glob(_GPUS)):
        return 1
    by_bytes = sum(_estimate_size(step.files) for step in reads) // _PROCESS_BYTES
    return max(1, min(fitting, by_bytes, free_memory() // _PROCESS_MEMORY))


def note_cores(workers: Workers) -> list[str]:
    """Returns a note if the config sets more processes than this machine has cores."""
    cores = count_cores()
    if workers == AUTO or workers <= cores:
        return []
    core_count = counted(cores, "core")
    return [
        f"beam.workers is {workers}, but this machine has {core_count}; more processes than cores"
        " slow the pipeline down"
    ]


def _estimate_size(files: Sequence[str]) -> int:
    """Returns the size of all files in bytes, estimated from a sample if there are many files."""
    sample = files[:: math.ceil(len(files) / _SAMPLE_FILES) or 1]
    return sum(map(_file_size, sample)) * len(files) // max(1, len(sample))


def _file_size(file: str) -> int:
    """Returns the size of a file in bytes.

    The size of a file that no longer exists is 0; the step that reads the file reports it.
    """
    try:
        return int(fileio.stat(file).length)
    except fileio.NotFoundError:
        return 0


class WorkersRunner(FnApiRunner):
    """Beam's runner with several processes; `choose_workers` determines their number.

    After each pipeline the runner compares the number of rows that the pipeline has read with the
    stored row counts of the examples.
    """

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        """Runs a pipeline to its end.

        Raises:
          InternalError: the pipeline has read fewer rows than the files have.
          RuntimeError: a worker failed; the cause is the worker's error.
          Exception: the error of a step in this process.
        """
        direct = options.view_as(DirectOptions)
        finder = _FindReads()
        pipeline.visit(finder)
        workers = choose_workers(finder.reads, max_workers())
        # With one of Beam's running modes, Beam would start its own processes.
        direct.direct_running_mode, direct.direct_num_workers = None, workers
        environment = None
        if workers > 1:
            logger.info("Beam runs in %d processes", workers)
            listen_on_loopback()
            environment = ForkedWorkers(workers)
        try:
            with report_rows(count_rows_of(finder.example_files), workers if environment else 0):
                result = FnApiRunner(environment).run_pipeline(pipeline, options)
        except RuntimeError as error:
            cause = find_cause(error)
            if cause is None:
                raise
            raise RuntimeError(str(error)) from cause
        check_rows(result.metrics(), finder.counted_files)
        return result


class _FindReads(PipelineVisitor):
    """A visitor that collects the `SpreadFiles` steps of a pipeline."""

    def __init__(self) -> None:
        self.reads: list[SpreadFiles] = []
        self.example_files: list[str] = []
        """The files of examples, each as often as it is read."""
        self.counted_files: dict[str, list[str]] = {}
        """The files whose rows are counted, by the label of the step that reads them."""

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        transform = transform_node.transform
        if isinstance(transform, SpreadFiles):
            if transform.is_counted:
                prefix = transform_node.full_label.rpartition("/")[0]
                self.counted_files.setdefault(prefix, []).extend(transform.files)
            if transform.reads_examples:
                self.example_files += transform.files
            self.reads.append(transform)
