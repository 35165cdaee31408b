"""What has to hold between `evaluate`, `push`, `metadata` and the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator

from components.example_gen.paths import is_remote
from pipeline.config.issues import Issue, near_match
from pipeline.config.metadata_url import parse_metadata_url
from pipeline.config.metrics import COUNT, is_own
from pipeline.config.sections.evaluate import OnLeakage
from pipeline.config.settings import (
    Approve,
    PipelineConfig,
)


def metrics_fit_the_task(config: PipelineConfig) -> Iterator[Issue]:
    """Every metric that is named has to be one of the task's."""
    known, configured = config.target.metrics(), config.evaluate.configured
    places = {f"evaluate.metrics.{i}": m for i, m in enumerate(config.evaluate.metrics)}
    named = {path: metric for path, metric in places.items() if isinstance(metric, str)}
    thresholds = {f"evaluate.thresholds.{m}": m for m in config.evaluate.thresholds}
    thresholds = {path: m for path, m in thresholds.items() if m not in configured}
    for path, metric in (named | thresholds).items():
        if metric not in known and not is_own(metric):
            candidates = {*known, *configured} if path in thresholds else known
            yield Issue(
                path,
                f"{metric!r} is no metric for {config.target.kind}; "
                f"{near_match(metric, candidates)} "
                "A metric of yours is an import path, such as my_metrics.Cost",
            )


def metrics_have_names_of_their_own(config: PipelineConfig) -> Iterator[Issue]:
    """What TFMA's config adds is called as no other metric, so that thresholds know which."""
    taken = {**config.target.metrics(), COUNT: None}
    for i, metric in enumerate(config.evaluate.metrics):
        if isinstance(metric, str):
            continue
        if metric.name in taken:
            yield Issue(
                f"evaluate.metrics.{i}",
                f"found {metric.name!r} a second time, or as the name of another metric; give "
                "config: {name: ...} one of its own",
            )
        taken[metric.name] = None


def thresholds_are_of_numbers(config: PipelineConfig) -> Iterator[Issue]:
    """A curve or a matrix is neither large nor small."""
    known = config.target.metrics()
    numbers = [name for name, metric in known.items() if metric.is_number]
    for name in config.evaluate.thresholds:
        if name in known and not known[name].is_number:
            yield Issue(
                f"evaluate.thresholds.{name}",
                f"{name} is no number; put it into evaluate.metrics, and bound one of "
                f"{', '.join(numbers)}",
            )


def thresholds_leave_room(config: PipelineConfig) -> Iterator[Issue]:
    """A threshold bounds something, and its bounds do not exclude each other."""
    for name, threshold in config.evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        if threshold.min is None and threshold.max is None and threshold.tolerance == 0:
            yield Issue(path, "it bounds nothing; give it min, max or tolerance")
        elif None not in (threshold.least, threshold.most) and threshold.least > threshold.most:  # type: ignore[operator]
            yield Issue(path, f"min {threshold.least:g} is above max {threshold.most:g}")


def thresholds_can_be_held(config: PipelineConfig) -> Iterator[Issue]:
    """What a threshold asks for beside a value has to be there."""
    for name, threshold in config.evaluate.thresholds.items():
        path = f"evaluate.thresholds.{name}"
        sure = {"min": threshold.is_least_sure, "max": threshold.is_most_sure}
        for key in (key for key, is_sure in sure.items() if is_sure):
            if config.evaluate.confidence is None:
                yield Issue(
                    f"{path}.{key}.confident",
                    "found true, but evaluate.confidence is null; give it a number such as 0.95",
                )
        if threshold.slices and not config.evaluate.slices:
            yield Issue(
                f"{path}.slices",
                "found true, but there are no evaluate.slices; name columns there, or leave it out",
            )


def tolerances_are_of_what_is_compared(config: PipelineConfig) -> Iterator[Issue]:
    """Some metrics are not held against the model in service."""
    known = config.target.metrics()
    for name, threshold in config.evaluate.thresholds.items():
        if threshold.tolerance and name in known and not known[name].is_compared:
            yield Issue(
                f"evaluate.thresholds.{name}.tolerance",
                f"found {threshold.tolerance:g}, but {name} is not compared with the model in "
                "service; give it min or max",
            )


def leaking_columns_can_be_found(config: PipelineConfig) -> Iterator[Issue]:
    """What a function of the user's makes of a column is not known, so that none is looked at."""
    if config.evaluate.leakage is OnLeakage.FAIL and config.preprocessing:
        yield Issue(
            "evaluate.leakage",
            "found 'fail', but with preprocessing no column is looked at; leave one of them out",
        )


def approvals_have_a_folder(config: PipelineConfig) -> Iterator[Issue]:
    """Who approves a model puts it in place whole, which object stores cannot."""
    directory = config.push.directory
    if config.push.approve is Approve.MANUAL and directory is not None and is_remote(directory):
        yield Issue(
            "push.approve",
            f"found 'manual', but push.directory is {directory}, and `approve` pushes to folders "
            "alone; leave it out, or give a folder",
        )


def metadata_names_a_database(config: PipelineConfig) -> Iterator[Issue]:
    """A server's URL names user, host and database, and keeps the password to itself."""
    if config.metadata is not None:
        try:
            parse_metadata_url(config.metadata)
        except ValueError as error:
            yield Issue("metadata", str(error))


EVALUATE_RULES = (
    metrics_fit_the_task,
    metrics_have_names_of_their_own,
    thresholds_are_of_numbers,
    thresholds_leave_room,
    thresholds_can_be_held,
    tolerances_are_of_what_is_compared,
    leaking_columns_can_be_found,
    approvals_have_a_folder,
    metadata_names_a_database,
)
"""All rules of this module."""
