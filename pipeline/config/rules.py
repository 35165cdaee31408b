"""All rules of a config, which stand with its sections, in the order in which they report."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.issues import Issue, Rule
from pipeline.config.metadata_url import METADATA_RULES
from pipeline.config.search_rules import TUNE_RULES
from pipeline.config.sections.data import (
    BEAM_RULES,
    DATA_RULES,
    DataSettings,
    builtin_data_is_known,
    episodes_are_of_an_environment,
    labels_exist,
    path_exists,
    picture_folders_exist,
    policy_is_there,
    schema_exists,
)
from pipeline.config.sections.evaluate import EVALUATE_RULES, EvaluateSettings
from pipeline.config.sections.model import (
    BERT_RULES,
    MODEL_RULES,
    TRANSFER_RULES,
    vocabularies_can_be_read,
    weights_are_a_file_of_weights,
    weights_are_those_of_a_bert,
)
from pipeline.config.sections.notify import NOTIFY_RULES
from pipeline.config.sections.optimize import OPTIMIZE_RULES, packages_are_installed
from pipeline.config.sections.push import PUSH_RULES
from pipeline.config.sections.schedule import SCHEDULE_RULES
from pipeline.config.sections.skew import SKEW_RULES
from pipeline.config.sections.train import AUGMENT_RULES, TRAIN_RULES
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import import_paths_lead_somewhere
from trainer_module.errors import enumerate_names
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
IN_PART = ("model", "train")
"""Those of which a family may read some keys alone."""
OF_ROWS = {"splits", "csv", "max_pixels"}
"""Those of `data` that every family reads whose data ExampleGen reads."""
DATA_KEYS = DataSettings.model_fields.keys() - {"format", "path"}
EVALUATE_KEYS = {"slices", "leakage", "folds"}
"""Those of `data` and of `evaluate`."""


def given_keys_are_read(config: PipelineConfig) -> Iterator[Issue]:
    """A key that the task's family does not read would be without effect."""
    reads, kind = config.family.reads, config.target.kind
    in_part = {name for name in IN_PART if any(path.startswith(f"{name}.") for path in reads)}
    given = {
        "": config.model_fields_set & SECTIONS - in_part,
        "data.": config.data.model_fields_set
        & DATA_KEYS - (OF_ROWS if config.family.reads_rows else set()),
        "evaluate.": config.evaluate.model_fields_set & EVALUATE_KEYS,
        **{f"{name}.": getattr(config, name).model_fields_set - {"run_fn"} for name in in_part},
    }
    for section, keys in given.items():
        for key in sorted(keys):
            path = f"{section}{'schema' if key == 'schema_file' else key}"
            if path not in reads:
                advice = "leave it out"
                if section.rstrip(".") in in_part:
                    fields = type(getattr(config, section.rstrip("."))).model_fields
                    known = [name for name in fields if f"{section}{name}" in reads]
                    advice = f"right are {enumerate_names(known, 'and')}"
                yield Issue(path, f"a task {kind} does not read it; {advice}")
    if config.train.run_fn:
        yield Issue("train.run_fn", f"a task {kind} has its own; leave it out")
    if config.schedule_or_default.warm_start:
        yield Issue("schedule.warm_start", f"a task {kind} begins from scratch; leave it out")


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


FAMILY_RULES = (
    given_keys_are_read,
    metrics_are_the_familys,
    import_paths_lead_somewhere,
    the_family_agrees,
)
"""What holds for the tasks of families other than the supervised."""


RULES: tuple[Rule, ...] = (
    *DATA_RULES,
    *BEAM_RULES,
    *MODEL_RULES,
    *TRANSFER_RULES,
    *BERT_RULES,
    *TRAIN_RULES,
    *AUGMENT_RULES,
    *EVALUATE_RULES,
    *PUSH_RULES,
    *METADATA_RULES,
    *SCHEDULE_RULES,
    *SKEW_RULES,
    *NOTIFY_RULES,
    *TUNE_RULES,
    *OPTIMIZE_RULES,
)
"""Every rule of supervised tasks, in the order in which problems are reported."""
OF_ANY_FAMILY: tuple[Rule, ...] = (
    *FAMILY_RULES,
    episodes_are_of_an_environment,
    policy_is_there,
    path_exists,
    builtin_data_is_known,
    *BEAM_RULES,
    *EVALUATE_RULES,
    *PUSH_RULES,
    *METADATA_RULES,
    *SCHEDULE_RULES,
    *SKEW_RULES,
    *NOTIFY_RULES,
)
"""Those of tasks of other families, whose own rules are `Family.problems`."""
LOOK_AT_FILES = (
    path_exists,
    policy_is_there,
    labels_exist,
    schema_exists,
    picture_folders_exist,
    weights_are_a_file_of_weights,
    weights_are_those_of_a_bert,
    vocabularies_can_be_read,
)
"""Those that mean something only where the pipeline runs on this machine."""


def check_rules(config: PipelineConfig, looks_at_files: bool = True) -> Iterator[Issue]:
    """All problems that the rules find.

    Args:
      config: values that are fine one by one.
      looks_at_files: whether the pipeline runs on this machine, with its files.
    """
    family = config.family
    of_data = DATA_RULES if family.reads_rows else ()
    of_family = RULES if family.has_label else (*OF_ANY_FAMILY, *of_data)
    rules = (*dict.fromkeys(of_family), packages_are_installed)
    left_out = () if looks_at_files else (*LOOK_AT_FILES, packages_are_installed)
    yield from config.find_issues(rule for rule in rules if rule not in left_out)
