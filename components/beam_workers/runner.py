"""Beam's runner in this process, with workers that are forks of it where that pays."""

from __future__ import annotations

import logging
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from components.beam_workers.failing import find_cause
from components.beam_workers.options import most_workers
from components.beam_workers.processes import ForkedWorkers
from components.beam_workers.sizing import choose_workers
from components.compat.beam import listen_here_alone
from components.row_counts import check_rows
from components.spreading import SpreadFiles

logger = logging.getLogger(__name__)


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
