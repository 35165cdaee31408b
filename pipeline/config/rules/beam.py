"""What has to hold between the settings of `beam:`."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue
from pipeline.config.settings import PipelineConfig


def workers_are_of_this_machine(config: PipelineConfig) -> Iterator[Issue]:
    """Who says how Beam runs says with its options how many workers there are."""
    if config.beam.args and "workers" in config.beam.model_fields_set:
        yield Issue(
            "beam.workers",
            f"found {config.beam.workers} beside beam.args, which say where Beam runs: leave "
            "beam.args out to use the cores of this machine, or say it in the words of that "
            "runner, such as --parallelism=4 of Flink",
        )


BEAM_RULES = (workers_are_of_this_machine,)
