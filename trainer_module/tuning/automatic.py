"""The space of a search that is given none: models for the features, with what matters in each."""

from __future__ import annotations

from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import ZOO
from trainer_module.settings.tune import Range
from trainer_module.tuning.space import KIND, Dimension

TABLE_KINDS = ("tabular", "mlp", "trees")
"""Models of columns, of which none is the best for every table."""


def _choice(*values: object) -> Range:
    return Range(choice=list(values))


def _log(low: float, high: float) -> Range:
    return Range(log=(low, high))


def _numbers(low: float, high: float) -> Range:
    return Range.model_validate({"float": (low, high)})


def _integers(low: int, high: int) -> Range:
    return Range.model_validate({"int": (low, high)})


_RATE, _SCHEDULE = "train.learning_rate.initial", "train.learning_rate.schedule"

SPACES: dict[str, dict[str, Range]] = {
    "tabular": {
        _SCHEDULE: _choice("cosine"),
        _RATE: _log(5e-4, 2e-2),
        "train.batch_size": _choice(32, 64, 128, 256),
        "model.hidden_units": _choice([64, 64], [128, 128], [256, 256], [128, 128, 128]),
        "model.dropout": _numbers(0.0, 0.4),
        "train.optimizer.kind": _choice("adamw"),
        "train.optimizer.weight_decay": _log(1e-4, 0.1),
    },
    "mlp": {
        "train.learning_rate": _log(1e-4, 1e-2),
        "train.batch_size": _choice(32, 64, 128),
        "model.hidden_units": _choice([64], [128, 64], [256, 128], [128, 128, 128]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "wide_deep": {
        "train.learning_rate": _log(1e-4, 1e-2),
        "train.batch_size": _choice(32, 64, 128),
        "model.hidden_units": _choice([64], [128, 64], [256, 128]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "trees": {
        "model.max_depth": _integers(3, 9),
        "model.shrinkage": _log(0.02, 0.3),
    },
    "cnn": {
        "train.learning_rate": _log(2e-4, 1e-2),
        "train.batch_size": _choice(32, 64, 128),
        "model.filters": _choice([16, 32], [32], [32, 64], [32, 64, 128]),
        "model.hidden_units": _choice([], [64], [128]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "convnet": {
        _SCHEDULE: _choice("cosine"),
        _RATE: _log(5e-4, 8e-3),
        "train.optimizer.kind": _choice("adamw"),
        "train.optimizer.weight_decay": _log(1e-3, 0.1),
        "model.hidden_units": _choice([], [64]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "bag": {
        _SCHEDULE: _choice("cosine"),
        _RATE: _log(5e-3, 0.3),
        "train.optimizer.kind": _choice("sgd"),
        "train.optimizer.momentum": _choice(0.9),
        "train.optimizer.clip_norm": _choice(5.0),
        "model.hidden_units": _choice([], [32], [64]),
        "model.dropout": _numbers(0.0, 0.5),
    },
    "text_cnn": {
        "train.learning_rate": _log(2e-4, 5e-3),
        "model.filters": _choice([64], [100], [200]),
        "model.embedding_size": _choice(16, 32, 64),
        "model.dropout": _numbers(0.2, 0.7),
    },
    "bert": {
        _SCHEDULE: _choice("linear"),
        _RATE: _log(3e-5, 1e-3),
        "model.dropout": _numbers(0.0, 0.3),
    },
}
"""By kind of model what is worth looking for; of others the rate of Adam alone."""

OTHERWISE = {"train.learning_rate": _log(1e-5, 3e-3)}


def automatic_space(settings: TrainerSettings) -> tuple[Dimension, ...]:
    """What is searched where a config gives no space.

    Args:
      settings: of the config as it stands, complete. What it gives of a key counts for the first
          trial alone; a kind that it names stays.
    """
    kinds = kinds_for(settings)
    chosen = (Dimension(KIND, _choice(*kinds)),) if len(kinds) > 1 else ()
    replaced = "model.filters" if settings.model.layers is not None else ""
    return chosen + tuple(
        Dimension(path, values, (kind,))
        for kind in kinds
        for path, values in SPACES.get(kind, OTHERWISE).items()
        if path != replaced
    )


def kinds_for(settings: TrainerSettings) -> tuple[str, ...]:
    """The kinds of models that a search tries: those that the same transformed data is for."""
    kind = settings.model.kind
    if kind not in TABLE_KINDS:
        return (kind,)
    types = {feature.type for feature in settings.features.values()}
    plain = not settings.target.has_options
    return tuple(
        name
        for name in TABLE_KINDS
        if not types & {*ZOO[name].refuses}
        and (not ZOO[name].tasks or (plain and settings.target.kind in ZOO[name].tasks))
        and (name == kind or ZOO[name].builder or settings.train.loss is None)
        and (name == kind or settings.optimize.suits(name))
    )
