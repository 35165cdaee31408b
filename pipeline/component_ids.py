"""The ids of the pipeline's nodes in metadata, summaries, logs and configs."""

from __future__ import annotations

from enum import StrEnum


class ComponentId(StrEnum):
    """The ids of components, in the order in which the data flows."""

    EXAMPLE_GEN = "ExampleGen"
    STATISTICS_GEN = "StatisticsGen"
    SCHEMA_GEN = "SchemaGen"
    EXAMPLE_VALIDATOR = "ExampleValidator"
    TRANSFORM = "Transform"
    TUNER = "Tuner"
    """Present if the config has a section `tune`."""
    TRAINER = "Trainer"
    EVALUATOR = "Evaluator"
    OPTIMIZER = "Optimizer"
    """Present if the config requests variants of the model."""
    INFRA_VALIDATOR = "InfraValidator"
    """Present unless `certificate` is false."""
    PUSHER = "Pusher"


TRAINING = (ComponentId.TUNER, ComponentId.TRAINER, ComponentId.OPTIMIZER)
"""The components that train or convert models in child processes, and resume after a killed run."""

PARALLEL = (
    ComponentId.EXAMPLE_GEN,
    ComponentId.STATISTICS_GEN,
    ComponentId.TRANSFORM,
    ComponentId.EVALUATOR,
)
"""The components whose work Beam may distribute over several processes."""

EVALUATING = (ComponentId.EVALUATOR, ComponentId.OPTIMIZER)
"""The components that evaluate models with TFMA."""


class ResolverId(StrEnum):
    """The resolvers, which look up artifacts of earlier runs; the console does not show them."""

    BASELINE = "BaselineResolver"
    WINDOW = "WindowResolver"
    ANALYZER_CACHE = "AnalyzerCacheResolver"
    PREVIOUS_STATISTICS = "PreviousStatisticsResolver"
    WARM_START = "WarmStartResolver"
