"""The settings of `task: generation`: the classes, the losses and the metrics."""

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
"""The metrics that `families/generation/measuring.py` computes, explained in `docs/generation.md`.
"""


class GanLoss(StrEnum):
    """The kind of loss of a GAN."""

    NON_SATURATING = "non_saturating"
    WASSERSTEIN = "wasserstein"


class GenerationTask(LearningTask):
    """The settings of `task: generation`, which generates pictures like those of the data."""

    kind: Literal["generation"]
    family: ClassVar[str] = "generation"
    monitor: ClassVar[str] = "generator_loss"
    conditional: bool = False
    """Whether the generator takes a class, which is the label `data.label`. Otherwise a label is
    optional and only used to measure the generated pictures.
    """
    noise: PositiveInt = 100
    """The number of normally distributed values that each picture is generated from."""
    loss: GanLoss = GanLoss.NON_SATURATING
    """`non_saturating` (Goodfellow et al., 2014), or `wasserstein` with a gradient penalty
    (Gulrajani et al., 2017).
    """
    label_smoothing: float | None = Field(default=None, ge=0, lt=0.5)
    """non_saturating: the value subtracted from the target 1 of real pictures (Salimans et al.,
    2016). Default: 0.1.
    """
    gradient_penalty: PositiveFloat | None = None
    """wasserstein: the weight of the gradient penalty. Default: 10."""
    critic_steps: PositiveInt | None = None
    """The discriminator's steps per step of the generator, each with other pictures. Default: 1;
    for wasserstein 5.
    """
    ema: float = Field(default=0.99, ge=0, lt=1)
    """The decay of the moving average of the generator's weights, which is pushed; 0 pushes the
    weights themselves.
    """
    collapse: float = Field(default=0.1, ge=0, lt=1)
    """The least variance of generated pictures as a share of the real variance; a generator below
    it has collapsed and is not blessed.
    """

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
        """The value subtracted from the target 1 of real pictures."""
        return 0.1 if self.label_smoothing is None else self.label_smoothing

    @property
    def penalty(self) -> float:
        """The weight of the gradient penalty."""
        return self.gradient_penalty or 10.0

    @property
    def steps_of_critic(self) -> int:
        """The discriminator's steps per step of the generator."""
        return self.critic_steps or (5 if self.loss is GanLoss.WASSERSTEIN else 1)

    @property
    def needs_label(self) -> bool:
        """Whether every picture needs a class."""
        return self.conditional

    @property
    def of_rows(self) -> BaseTask:
        """The task by which rows are read, which treats the label as a class."""
        return MulticlassTask(kind="multiclass")

    def without_model_keys(self) -> GenerationTask:
        """Returns the task with only the option that reading the data depends on: `conditional`."""
        return GenerationTask(kind="generation", conditional=self.conditional)

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics that compare generated pictures with held-out ones."""
        return METRICS | ({CLASS_AGREEMENT: Metric()} if self.conditional else {})

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the names of all metrics, of which the Frechet distance comes first."""
        return (*self.metrics(),)
