"""The settings of `task: generation`, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from trainer_module.families.supervised.tasks.classes import MulticlassTask
from trainer_module.settings.tasks import BaseTask, LearningTask, Metric

DISTANCE, PRECISION, RECALL = "frechet_distance", "precision", "recall"
COVERAGE, COPIES, SPREAD = "mode_coverage", "copies", "spread"
CLASS_AGREEMENT = "class_accuracy"

METRICS = {
    DISTANCE: Metric(higher_is_better=False, has_unit=True),
    PRECISION: Metric(),
    RECALL: Metric(),
    COVERAGE: Metric(),
    COPIES: Metric(higher_is_better=False, is_compared=False),
    SPREAD: Metric(is_compared=False),
}
"""The metrics that `measuring.py` computes; docs/generation.md explains them."""


class GanLoss(StrEnum):
    """The loss of a GAN."""

    NON_SATURATING = "non_saturating"
    """The cross-entropy, with labels swapped for the generator (Goodfellow et al., 2014)."""
    WASSERSTEIN = "wasserstein"
    """The Wasserstein distance with a gradient penalty (Gulrajani et al., 2017)."""


class GenerationTask(LearningTask):
    """The settings of `task: generation`: a model generates pictures similar to the data."""

    kind: Literal["generation"]
    family: ClassVar[str] = "generation"
    monitor: ClassVar[str] = "generator_loss"
    conditional: bool = False
    """Whether the generator takes a class, which is a value of the column `data.label`. Otherwise
    `data.label` is optional, and only the evaluation uses it.
    """
    noise: PositiveInt = 100
    """The number of random values from which each picture is generated."""
    loss: GanLoss = GanLoss.NON_SATURATING
    """`non_saturating` (Goodfellow et al., 2014), or `wasserstein` with a gradient penalty
    (Gulrajani et al., 2017).
    """
    label_smoothing: float | None = Field(default=None, ge=0, lt=0.5)
    """non_saturating: the number that is subtracted from the target of real pictures, 1 (Salimans
    et al., 2016). Default: 0.1.
    """
    gradient_penalty: PositiveFloat | None = None
    """wasserstein: the weight of the gradient penalty. Default: 10."""
    critic_steps: PositiveInt | None = None
    """The number of the discriminator's steps per step of the generator; each step has other
    pictures. Default: 5 for wasserstein, otherwise 1.
    """
    ema: float = Field(default=0.99, ge=0, lt=1)
    """The decay of a moving average of the generator's weights. The pushed generator has the
    averaged weights. 0: no average.
    """
    collapse: float = Field(default=0.1, ge=0, lt=1)
    """The minimum variance of generated pictures, as a share of the variance of real pictures. A
    generator with a smaller variance counts as collapsed and is not blessed.
    """

    @model_validator(mode="after")
    def _options_are_read(self) -> GenerationTask:
        wasserstein = self.loss is GanLoss.WASSERSTEIN
        for key, is_read in (
            ("label_smoothing", not wasserstein),
            ("gradient_penalty", wasserstein),
        ):
            if getattr(self, key) is not None and not is_read:
                raise ValueError(f"loss: {self.loss.value} does not read {key}; remove {key}")
        return self

    @property
    def smoothing(self) -> float:
        """The value of `label_smoothing`, or its default."""
        return 0.1 if self.label_smoothing is None else self.label_smoothing

    @property
    def penalty(self) -> float:
        """The value of `gradient_penalty`, or its default."""
        return self.gradient_penalty or 10.0

    @property
    def steps_of_critic(self) -> int:
        """The value of `critic_steps`, or its default."""
        return self.critic_steps or (5 if self.loss is GanLoss.WASSERSTEIN else 1)

    @property
    def needs_label(self) -> bool:
        """Whether every picture needs a class."""
        return self.conditional

    @property
    def of_rows(self) -> BaseTask:
        """The supervised task for reading rows: the label is a class."""
        return MulticlassTask(kind="multiclass")

    def without_model_keys(self) -> GenerationTask:
        """Returns the task with only `conditional`, on which reading the data depends."""
        return GenerationTask(kind="generation", conditional=self.conditional)

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics, which compare generated pictures with pictures of the eval split."""
        return METRICS | ({CLASS_AGREEMENT: Metric()} if self.conditional else {})

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the names of all metrics; the first is the Frechet distance."""
        return (*self.metrics(),)
