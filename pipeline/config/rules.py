"""All rules of a config, which stand with its sections, in the order in which they report."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.family_rules import FAMILY_RULES
from pipeline.config.issues import Issue, Rule
from pipeline.config.metadata_url import METADATA_RULES
from pipeline.config.search_rules import TUNE_RULES
from pipeline.config.sections.data import (
    BEAM_RULES,
    DATA_RULES,
    builtin_data_is_known,
    labels_exist,
    path_exists,
    picture_folders_exist,
    schema_exists,
)
from pipeline.config.sections.evaluate import EVALUATE_RULES
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
