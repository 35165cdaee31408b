"""The ids of the pipeline's nodes, as metadata, summaries, logs and configs have them."""

from __future__ import annotations

from enum import StrEnum


class ComponentId(StrEnum):
    """The components of every pipeline, in the order in which the data flows."""

    EXAMPLE_GEN = "ExampleGen"
    STATISTICS_GEN = "StatisticsGen"
    SCHEMA_GEN = "SchemaGen"
    EXAMPLE_VALIDATOR = "ExampleValidator"
    TRANSFORM = "Transform"
    TUNER = "Tuner"
    """Where the config searches for better values."""
    TRAINER = "Trainer"
    EVALUATOR = "Evaluator"
    OPTIMIZER = "Optimizer"
    """Where the config asks for variants of the model."""
    INFRA_VALIDATOR = "InfraValidator"
    """Unless `certificate` is false."""
    PUSHER = "Pusher"


TRAINING = (ComponentId.TUNER, ComponentId.TRAINER, ComponentId.OPTIMIZER)
"""Those that work in processes of their own, and go on from what a killed run has left."""

SHARING = (
    ComponentId.EXAMPLE_GEN,
    ComponentId.STATISTICS_GEN,
    ComponentId.TRANSFORM,
    ComponentId.EVALUATOR,
)
"""Those whose work Beam may share between processes."""

EVALUATING = (ComponentId.EVALUATOR, ComponentId.OPTIMIZER)
"""Those that measure by TFMA."""


class ResolverId(StrEnum):
    """The resolvers, which look up artifacts of earlier runs; screens do not mention them."""

    BASELINE = "BaselineResolver"
    WINDOW = "WindowResolver"
    ANALYZER_CACHE = "AnalyzerCacheResolver"
    PREVIOUS_STATISTICS = "PreviousStatisticsResolver"
    WARM_START = "WarmStartResolver"
