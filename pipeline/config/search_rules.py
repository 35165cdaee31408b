"""The rules of `tune`: the searched keys and values have to be valid in the config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from pipeline.config.issues import Issue, from_validation, near_match, rules_of, show_value
from pipeline.config.sections.model import MODEL_RULES
from pipeline.config.sections.optimize import OPTIMIZE_RULES
from pipeline.config.sections.train import TRAIN_RULES
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import enumerate_names
from trainer_module.settings import (
    AUTO,
    ModelSettings,
    Settings,
    TrainerSettings,
    TrainSettings,
)
from trainer_module.settings.model import ZOO
from trainer_module.settings.tasks import BaseTask
from trainer_module.settings.train import READERS
from trainer_module.settings.tune import Algorithm, TuneSettings
from trainer_module.strategies.base import Processes
from trainer_module.tuning.plan import LOSS, PREFIX, objectives_of
from trainer_module.tuning.space import KIND, OPTIMIZER, candidate, reads
from trainer_module.typed_words import typed_program

SECTIONS: dict[str, type[Settings]] = {"model": ModelSettings, "train": TrainSettings}
"""The sections that a search may change, by name."""

NOT_SEARCHED = (
    "model.weights",
    "train.backup_steps",
    "train.callbacks",
    "train.checkpoints",
    "train.cluster",
    "train.retries",
    "train.run_fn",
    "train.seed",
    "train.strategy",
)

"""Keys that determine where and how training runs, or that Transform reads."""


def searched_keys_are_known(tune: TuneSettings | None) -> Iterator[Issue]:
    """Checks that a search changes only keys of the Trainer, as Transform runs once per search."""
    for path in _space(tune):
        section, _, key = path.partition(".")
        searched_key = f"tune.space.{path}"
        if section == "features":
            yield Issue(
                searched_key,
                "Transform would have to run again for each trial; search only keys of model and "
                f"train, and compare values of {path} in separate runs with --set",
            )
        elif section not in SECTIONS or not key:
            yield Issue(
                searched_key,
                f"a search changes keys of {enumerate_names(SECTIONS, 'and')} only, such as "
                "train.learning_rate",
            )
        elif (name := key.split(".")[0]) not in SECTIONS[section].model_fields:
            hint = near_match(name, SECTIONS[section].model_fields)
            yield Issue(searched_key, f"unknown key; {hint}")
        elif ".".join(path.split(".")[:2]) in NOT_SEARCHED:
            yield Issue(searched_key, "a search cannot change this key; remove it from tune.space")


def searched_values_fit(
    tune: TuneSettings | None, trainer_settings: TrainerSettings, without_search: dict[str, Any]
) -> Iterator[Issue]:
    """Checks that each value of the search space would be valid in the config."""
    space = _space(tune)
    if any(True for _ in searched_keys_are_known(tune)):
        return
    kinds = space[KIND].extremes if KIND in space else [trainer_settings.model.kind]
    for path, values in space.items():
        readers = [kind for kind in kinds if reads(str(kind), path)]
        if not readers:
            suitable = [kind for kind in ZOO if reads(kind, path)]
            yield Issue(
                f"tune.space.{path}",
                f"no searched model reads {path} ({enumerate_names(map(str, kinds), 'and')}); "
                f"remove this key, or add {enumerate_names(suitable, 'or')} to "
                "tune.space.model.kind",
            )
            continue
        others = {KIND: readers[0]} if KIND in space else {}
        others |= _reader_of_option(space, path)
        for value in values.probes:
            yield from _problems_of(without_search, path, value, others)


def _reader_of_option(space: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns the optimizer with which to check a searched option that not all optimizers read."""
    readers = READERS.get(path.removeprefix(f"{OPTIMIZER}."))
    choices = [v for p in (OPTIMIZER, f"{OPTIMIZER}.kind") if p in space for v in space[p].extremes]
    suitable = [choice for choice in choices if readers and choice in readers]
    return {f"{OPTIMIZER}.kind": suitable[0]} if suitable else {}


def _problems_of(
    settings: dict[str, Any], path: str, value: Any, others: dict[str, Any]
) -> Iterator[Issue]:
    """Yields the problems that the config has only with this value of a searched key."""
    values_of_trial = {**others, path: value}
    raw = candidate(settings, values_of_trial)
    searched_key = f"tune.space.{path}"
    try:
        config = PipelineConfig.model_validate(raw)
    except ValidationError as error:
        for issue in from_validation(error, raw, PipelineConfig):
            below = issue.path.removeprefix(path).strip(".")
            yield Issue(searched_key, f"{below}: {issue.message}" if below else issue.message)
        return
    existing = {str(issue) for issue in _issues(candidate(settings, others))}
    for issue in _issues(raw, config):
        if str(issue) not in existing:
            shown = show_value(path.split("."), value)
            yield Issue(searched_key, f"with {shown}: {issue}")


def _issues(raw: dict[str, Any], config: PipelineConfig | None = None) -> list[Issue]:
    """Returns the problems that the rules for models, training and optimization find."""
    try:
        config = config or PipelineConfig.model_validate(raw)
    except ValidationError:
        return []
    return list(config.find_issues((*MODEL_RULES, *TRAIN_RULES, *OPTIMIZE_RULES)))


def objectives_are_measured(label_task: BaseTask, tune: TuneSettings | None) -> Iterator[Issue]:
    """Checks that training measures the objective of a search after each epoch."""
    if tune is None or tune.objective is None:
        return
    objectives = objectives_of(label_task)
    if tune.objective not in objectives:
        is_evaluated = tune.objective.removeprefix(PREFIX) in label_task.metrics()
        measurer = "only the Evaluator" if is_evaluated else "nothing"
        yield Issue(
            "tune.objective",
            f"found {tune.objective!r}, which {measurer} measures for `task: {label_task.kind}`; "
            f"expected one of {', '.join(objectives)}",
        )


def searched_losses_are_compared(
    label_task: BaseTask, tune: TuneSettings | None
) -> Iterator[Issue]:
    """Checks that the objective is not the loss if trials have different losses."""
    objective = None if tune is None else tune.objective or label_task.usual_objective
    losses = [path for path in _space(tune) if path.split(".")[:2] == ["train", "loss"]]
    if objective == LOSS and losses:
        others = [name for name in objectives_of(label_task) if name != LOSS]
        yield Issue(
            f"tune.space.{losses[0]}",
            f"{LOSS} cannot compare trials that have different losses; set tune.objective to "
            f"{enumerate_names(others, 'or')}",
        )


def trials_are_processes_of_this_machine(
    train: TrainSettings, tune: TuneSettings | None
) -> Iterator[Issue]:
    """Checks that a trial needs only one process, as no cluster is started for each trial."""
    strategy = train.strategy
    if tune is not None and strategy.processes is not Processes.ONE:
        yield Issue(
            "tune",
            f"a trial trains in one process, but train.strategy {strategy.kind} needs several; "
            f"search with train.strategy: mirrored, and train with the values that "
            f"`{typed_program()} tune` shows",
        )


def searched_models_share_features(
    tune: TuneSettings | None, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that searched models read the features that Transform makes for `model`."""
    space = _space(tune)
    config_kind = trainer_settings.model.kind
    for kind in space[KIND].extremes if KIND in space else ():
        if kind in ZOO and config_kind in ZOO and ZOO[kind].features != ZOO[config_kind].features:
            yield Issue(
                f"tune.space.{KIND}",
                f"{kind} needs other transformed features than {config_kind}, the config's model; "
                f"search {kind} in a separate run with model.kind: {kind}",
            )
        elif kind == AUTO:
            yield Issue(
                f"tune.space.{KIND}",
                f"found {AUTO}, which means {config_kind} in this config; write the name "
                f"{config_kind}",
            )


def grids_have_steps(tune: TuneSettings | None) -> Iterator[Issue]:
    """Checks that a grid search has only choices and integers, as other ranges are infinite."""
    if tune is None or tune.algorithm is not Algorithm.GRID:
        return
    if tune.is_automatic:
        yield Issue(
            "tune.algorithm", "grid needs choices in tune.space; add tune.space, or use tpe"
        )
    for path, values in tune.space.items():
        if values.choice is None and values.integers is None:
            yield Issue(
                f"tune.space.{path}",
                "grid tries every value, but this range has infinitely many; list values with "
                "`choice`, or use the algorithm tpe",
            )


def _space(tune: TuneSettings | None) -> dict[str, Any]:
    return {} if tune is None else tune.space


TUNE_RULES = rules_of(__name__)
