"""What has to hold between a task's family and the config, of which it reads what it likes."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue
from pipeline.config.sections.data import DataSettings
from pipeline.config.sections.evaluate import EvaluateSettings
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import check_import_path
from trainer_module.settings.tasks import LearningTask

SECTIONS = {
    "features",
    "preprocessing",
    "schema_file",
    "on_anomaly",
    "model",
    "train",
    "tune",
    "optimize",
    "drift",
    "skew",
}
"""Keys of a config that not every family reads."""
DATA_KEYS = DataSettings.model_fields.keys() - {"format", "path", "splits", "csv", "max_pixels"}
EVALUATE_KEYS = {"slices", "confidence", "leakage", "ties", "folds"}
"""Those of `data` and of `evaluate`."""


def given_keys_are_read(config: PipelineConfig) -> Iterator[Issue]:
    """A key that the task's family does not read would be without effect."""
    reads = config.family.reads
    given = {
        "": config.model_fields_set & SECTIONS,
        "data.": config.data.model_fields_set & DATA_KEYS,
        "evaluate.": config.evaluate.model_fields_set & EVALUATE_KEYS,
    }
    for section, keys in given.items():
        for key in sorted(keys):
            path = f"{section}{'schema' if key == 'schema_file' else key}"
            if path not in reads:
                yield Issue(path, f"a task {config.target.kind} does not read it; leave it out")
    if config.train.run_fn:
        yield Issue("train.run_fn", f"a task {config.target.kind} has its own; leave it out")


def the_family_agrees(config: PipelineConfig) -> Iterator[Issue]:
    """What the family has to say of its own options."""
    return (Issue(path, message) for path, message in config.family.problems(config))


def metrics_are_the_familys(evaluate: EvaluateSettings, target: LearningTask) -> Iterator[Issue]:
    """Classes of Keras's and TFMA's compare with labels, which there are none of."""
    for key, path in evaluate.own_code.items():
        known = ", ".join(target.metrics())
        yield Issue(key, f"found {path!r}; a task {target.kind} is measured by {known}")
    for place, metric in enumerate(evaluate.metrics):
        if not isinstance(metric, str):
            yield Issue(f"evaluate.metrics.{place}", "found a class; name a metric of the task")


def code_leads_somewhere(own_code: dict[str, str]) -> Iterator[Issue]:
    """The family's code, and the user's, is found before anything runs, without running it."""
    for key, path in own_code.items():
        yield from check_import_path(key, path)


FAMILY_RULES = (
    given_keys_are_read,
    metrics_are_the_familys,
    code_leads_somewhere,
    the_family_agrees,
)
"""All rules of this module."""
