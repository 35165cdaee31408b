"""The rules of `tune`: a search, its space and the config have to fit together."""

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
"""Keys that say where and how training runs, or that Transform reads."""


def searched_keys_are_known(tune: TuneSettings | None) -> Iterator[Issue]:
    """Checks that a search changes only keys that the Trainer reads; others need Transform
    again.
    """
    for path in _space(tune):
        section, _, key = path.partition(".")
        where = f"tune.space.{path}"
        if section == "features":
            yield Issue(
                where,
                "Transform would have to run again for each trial; search keys of model and "
                "train, and compare values of this key in runs with --set",
            )
        elif section not in SECTIONS or not key:
            yield Issue(
                where,
                f"a search changes keys of {enumerate_names(SECTIONS, 'and')} only, such as "
                "train.learning_rate",
            )
        elif (known := key.split(".")[0]) not in SECTIONS[section].model_fields:
            hint = near_match(known, SECTIONS[section].model_fields)
            yield Issue(where, f"unknown key; {hint}")
        elif ".".join(path.split(".")[:2]) in NOT_SEARCHED:
            yield Issue(where, "this key has the same value in all trials; leave it out")


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
                f"{enumerate_names(map(str, kinds), 'and')} do not read this key; leave it out, "
                f"or search {enumerate_names(suitable, 'or')} too, by model.kind",
            )
            continue
        others = {KIND: readers[0]} if KIND in space else {}
        others |= _reader_of_option(space, path)
        for value in values.probes:
            yield from _problems_of(without_search, path, value, others)


def _reader_of_option(space: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns the optimizer to check an option with, as some options belong to one optimizer."""
    readers = READERS.get(path.removeprefix(f"{OPTIMIZER}."))
    choices = [v for p in (OPTIMIZER, f"{OPTIMIZER}.kind") if p in space for v in space[p].extremes]
    suitable = [choice for choice in choices if readers and choice in readers]
    return {f"{OPTIMIZER}.kind": suitable[0]} if suitable else {}


def _problems_of(
    given: dict[str, Any], path: str, value: Any, others: dict[str, Any]
) -> Iterator[Issue]:
    """Yields the problems that one value of a key adds to those of the config."""
    values_of_trial = {**others, path: value}
    raw = candidate(given, values_of_trial)
    where = f"tune.space.{path}"
    try:
        config = PipelineConfig.model_validate(raw)
    except ValidationError as error:
        for issue in from_validation(error, raw, PipelineConfig):
            below = issue.path.removeprefix(path).strip(".")
            yield Issue(where, f"{below}: {issue.message}" if below else issue.message)
        return
    known = {str(issue) for issue in _issues(candidate(given, others))}
    for issue in _issues(raw, config):
        if str(issue) not in known:
            shown = show_value(path.split("."), value)
            yield Issue(where, f"with {shown}: {issue}")


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
    known = objectives_of(label_task)
    if tune.objective not in known:
        is_evaluated = tune.objective.removeprefix(PREFIX) in label_task.metrics()
        measurer = "only the Evaluator" if is_evaluated else "nothing"
        yield Issue(
            "tune.objective",
            f"found {tune.objective!r}, which {measurer} measures for a {label_task.kind} task; "
            f"right is one of {', '.join(known)}",
        )


def searched_losses_are_compared(
    label_task: BaseTask, tune: TuneSettings | None
) -> Iterator[Issue]:
    """Checks that the objective compares trials of different losses: their loss values do not."""
    objective = None if tune is None else tune.objective or label_task.usual_objective
    losses = [path for path in _space(tune) if path.split(".")[:2] == ["train", "loss"]]
    if objective == LOSS and losses:
        others = [name for name in objectives_of(label_task) if name != LOSS]
        yield Issue(
            f"tune.space.{losses[0]}",
            f"trials of different losses cannot be compared by {LOSS}; give tune.objective: "
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
            f"a trial trains in one process, and strategy {strategy.kind} needs several; search "
            "under mirrored, and train with the values that `scopeline tune` shows",
        )


def searched_models_share_features(
    tune: TuneSettings | None, trainer_settings: TrainerSettings
) -> Iterator[Issue]:
    """Checks that searched models read the features that Transform makes for the config's model."""
    space = _space(tune)
    own = trainer_settings.model.kind
    for kind in space[KIND].extremes if KIND in space else ():
        if kind in ZOO and own in ZOO and ZOO[kind].features != ZOO[own].features:
            yield Issue(
                f"tune.space.{KIND}",
                f"{kind} needs other transformed features than {own}, the model of the config, so "
                "that Transform would have to run again; search each of them in a run of its own",
            )
        elif kind == AUTO:
            yield Issue(
                f"tune.space.{KIND}", f"{AUTO} cannot be searched; it stands for {own} here"
            )


def grids_have_steps(tune: TuneSettings | None) -> Iterator[Issue]:
    """Checks that a grid search has only choices and integers: other ranges are infinite."""
    if tune is None or tune.algorithm is not Algorithm.GRID:
        return
    if tune.is_automatic:
        yield Issue("tune.algorithm", "a grid needs a `space` of choices; give one, or use tpe")
    for path, values in tune.space.items():
        if values.choice is None and values.integers is None:
            yield Issue(
                f"tune.space.{path}",
                "a grid tries every value, and a range of numbers has infinitely many; give a "
                "choice, or use the algorithm tpe",
            )


def _space(tune: TuneSettings | None) -> dict[str, Any]:
    return {} if tune is None else tune.space


TUNE_RULES = rules_of(__name__)
