"""`task: generation`: what is made, by which loss, and what of it can be measured."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from trainer_module.families.supervised.tasks.classes import MulticlassTask
from trainer_module.settings.tasks import BaseTask, LearningTask, Metric

DISTANCE, PRECISION, RECALL = "frechet_distance", "precision", "recall"
COVERAGE, COPIES, SPREAD = "mode_coverage", "copies", "spread"
OBEYED = "class_accuracy"

METRICS = {
    DISTANCE: Metric(higher_is_better=False, has_unit=True),
    PRECISION: Metric(),
    RECALL: Metric(),
    COVERAGE: Metric(),
    COPIES: Metric(higher_is_better=False, is_compared=False),
    SPREAD: Metric(is_compared=False),
}
"""What `families/generation/measuring.py` computes; `docs/generation.md` says how."""


class GanLoss(StrEnum):
    """What the two networks of a GAN play for."""

    NON_SATURATING = "non_saturating"
    WASSERSTEIN = "wasserstein"


class GenerationTask(LearningTask):
    """Pictures are generated that look like those of the data."""

    kind: Literal["generation"]
    family: ClassVar[str] = "generation"
    monitor: ClassVar[str] = "generator_loss"
    conditional: bool = False
    """Whether a class is asked for, which the label `data.label` names. Otherwise a label is only
    used to measure what is generated, and need not be there."""
    noise: PositiveInt = 100
    """Numbers that each picture is made of, normally distributed."""
    loss: GanLoss = GanLoss.NON_SATURATING
    """`non_saturating` (Goodfellow et al., 2014), or `wasserstein` with a gradient penalty
    (Gulrajani et al., 2017)."""
    label_smoothing: float | None = Field(default=None, ge=0, lt=0.5)
    """non_saturating: what is taken off the 1 that real pictures count as (Salimans et al., 2016).
    Default: 0.1."""
    gradient_penalty: PositiveFloat | None = None
    """wasserstein: the weight of the penalty. Default: 10."""
    critic_steps: PositiveInt | None = None
    """Steps of the discriminator for each of the generator, with other pictures each. Default: 1;
    of wasserstein 5."""
    ema: float = Field(default=0.99, ge=0, lt=1)
    """The generator that is pushed is the moving average of its weights, of which each step keeps
    so much; 0: its weights as they are."""
    collapse: float = Field(default=0.1, ge=0, lt=1)
    """Generated pictures whose variance is less than this share of that of real ones are collapsed:
    their generator is not blessed."""

    @model_validator(mode="after")
    def _options_are_read(self) -> GenerationTask:
        wasserstein = self.loss is GanLoss.WASSERSTEIN
        for key, is_read in (
            ("label_smoothing", not wasserstein),
            ("gradient_penalty", wasserstein),
        ):
            if getattr(self, key) is not None and not is_read:
                raise ValueError(f"{key} is not read by loss: {self.loss.value}; leave it out")
        return self

    @property
    def smoothing(self) -> float:
        """What is taken off the 1 of real pictures."""
        return 0.1 if self.label_smoothing is None else self.label_smoothing

    @property
    def penalty(self) -> float:
        """The weight of the gradient penalty."""
        return self.gradient_penalty or 10.0

    @property
    def steps_of_critic(self) -> int:
        """Steps of the discriminator for each of the generator."""
        return self.critic_steps or (5 if self.loss is GanLoss.WASSERSTEIN else 1)

    @property
    def needs_label(self) -> bool:
        """Whether every picture has to have a class, and there have to be several."""
        return self.conditional

    @property
    def of_rows(self) -> BaseTask:
        """A label is a class, where there is one."""
        return MulticlassTask(kind="multiclass")

    def without_model_keys(self) -> GenerationTask:
        """Who reads the data asks for no more than whether the label is needed."""
        return GenerationTask(kind="generation", conditional=self.conditional)

    def metrics(self) -> Mapping[str, Metric]:
        """Distances between what is generated and pictures that were held out."""
        return METRICS | ({OBEYED: Metric()} if self.conditional else {})

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the distance decides."""
        return (*self.metrics(),)
