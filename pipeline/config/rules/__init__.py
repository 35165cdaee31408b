"""What has to hold between the values of a config: one small function per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipeline.config.issues import Issue
from pipeline.config.rules.augment import AUGMENT_RULES
from pipeline.config.rules.beam import BEAM_RULES
from pipeline.config.rules.bert import (
    BERT_RULES,
    vocabularies_can_be_read,
    weights_are_those_of_a_bert,
)
from pipeline.config.rules.data import (
    DATA_RULES,
    builtin_data_is_known,
    labels_exist,
    path_exists,
    picture_folders_exist,
    schema_exists,
)
from pipeline.config.rules.evaluate import EVALUATE_RULES
from pipeline.config.rules.family import FAMILY_RULES
from pipeline.config.rules.model import MODEL_RULES
from pipeline.config.rules.optimize import OPTIMIZE_RULES, packages_are_installed
from pipeline.config.rules.schedule import SCHEDULE_RULES
from pipeline.config.rules.train import TRAIN_RULES
from pipeline.config.rules.transfer import TRANSFER_RULES, weights_are_a_file_of_weights
from pipeline.config.rules.tune import TUNE_RULES
from pipeline.config.settings import PipelineConfig

Rule = Callable[[PipelineConfig], Iterator[Issue]]
RULES: tuple[Rule, ...] = (
    *DATA_RULES,
    *BEAM_RULES,
    *MODEL_RULES,
    *TRANSFER_RULES,
    *BERT_RULES,
    *TRAIN_RULES,
    *AUGMENT_RULES,
    *EVALUATE_RULES,
    *SCHEDULE_RULES,
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
    *SCHEDULE_RULES,
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
    for rule in RULES if config.family.has_label else OF_ANY_FAMILY:
        if looks_at_files or rule not in LOOK_AT_FILES:
            yield from rule(config)
    if looks_at_files:
        yield from packages_are_installed(config)
