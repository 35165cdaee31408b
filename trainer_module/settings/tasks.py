"""The key `task` of a config: the name of a task, or a mapping with its options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias

import numpy as np

from trainer_module.sections import Registered, Settings, import_registered, named_or_mapping

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor


CLASS_METRICS = "components.evaluator.own_metrics.classes"
NUMBER_METRICS = "components.evaluator.own_metrics.numbers"
"""The modules of the project's own metrics, which TFMA and Keras lack."""


class Task(StrEnum):
    """The kind of a label: one of two classes, one of more classes, or a number.

    Every supervised task has one of these kinds; code that reads labels does not distinguish
    further.
    """

    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"

    @property
    def is_classification(self) -> bool:
        """Whether the label is a class."""
        return self is not Task.REGRESSION


@dataclass(frozen=True)
class Metric:
    """A metric: the TFMA or Keras class that computes it, and its properties."""

    class_name: str = ""
    """The name of the class, or an empty string if the task's family computes the metric."""
    higher_is_better: bool = True
    module: str = ""
    """The module of the class, or an empty string if TFMA or Keras finds the class by its name."""
    options: dict[str, Any] = field(default_factory=dict)
    """The arguments of the class besides the name."""
    is_compared: bool = True
    """Whether a threshold also compares the model with the model in service. False for metrics
    whose best value is neither the smallest nor the largest, and for metrics that another model may
    lack."""
    is_half: bool = False
    """Whether the metric is one side of a trade-off, such as recall or precision. Such a metric
    blocks a model only if it has a threshold."""
    has_unit: bool = False
    """Whether the values depend on the label's unit, or have an unknown range; models are then
    compared by the ratio of their values. Otherwise they are compared by the difference."""
    is_number: bool = True
    """Whether the value is a number. A matrix or a curve has no thresholds; it is stored in TFMA's
    plots, under the name that TFMA's views expect."""


class LabelStatistics(Protocol):
    """The statistics of the label on the train split; `Problem` implements this protocol."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in the order of their indices, or an empty tuple for a numeric label."""

    @property
    def label_mean(self) -> float:
        """The mean of a numeric label, or of its logarithm."""

    @property
    def label_deviation(self) -> float:
        """The standard deviation of a numeric label, or of its logarithm."""

    @property
    def log_range(self) -> tuple[float, float] | None:
        """The least and the largest logarithm of a prediction, if the model learns logarithms."""

    @property
    def output_units(self) -> int:
        """The number of units of a model's last layer."""

    def layer_name(self, name: str) -> str:
        """Returns the name of a layer that no feature has."""


class LearningTask(Settings):
    """The base class of all tasks: the settings of a task, with the metrics it can be measured by.

    The subclasses add the options of their task.
    """

    kind: str
    family: ClassVar[str]
    """The name of the task's family in `FAMILIES`."""
    monitor: ClassVar[str] = "val_loss"
    """The metric in the training history that selects the best epoch and stops training. A smaller
    value is better."""

    @property
    def of_rows(self) -> BaseTask | None:
        """The supervised task for reading rows with labels, or None if this task learns from other
        data.
        """
        return None

    @property
    def needs_label(self) -> bool:
        """Whether every row needs a label, and the labels need at least two different values."""
        return True

    @property
    def has_options(self) -> bool:
        """Whether the task has an option that not every model supports."""
        return len(self.model_dump(exclude_defaults=True)) > 1

    def without_model_keys(self) -> LearningTask:
        """Returns the task without the keys that only the Trainer reads.

        The other components use this task in their cache keys: a change of a key that only the
        Trainer reads does not run them again.
        """
        return self

    def metrics(self) -> Mapping[str, Metric]:
        """Returns the metrics that the Evaluator can measure, by their name in the config."""
        raise NotImplementedError

    def usual_metrics(self) -> tuple[str, ...]:
        """Returns the names of the main default metrics.

        Without thresholds, the first of these metrics decides whether a model is blessed.
        """
        raise NotImplementedError

    def reported_metrics(self) -> tuple[str, ...]:
        """Returns the names of further default metrics, which never decide on a model."""
        return ()

    def default_metrics(self) -> tuple[str, ...]:
        """Returns the names of the metrics for a config without `evaluate.metrics`."""
        known = self.metrics()
        return (*self.usual_metrics(), *(name for name in self.reported_metrics() if name in known))


class BaseTask(LearningTask):
    """The base class of supervised tasks, which learn from rows with labels.

    A task transforms the labels, builds the last layer and the loss of a model, and converts the
    model's output for the Evaluator and for clients.
    """

    family: ClassVar[str] = "supervised"
    label_kind: ClassVar[Task]
    """The kind of the task's label."""
    alternatives: ClassVar[str] = ""
    """The names of other tasks, which messages suggest for labels that this task cannot use."""
    needs_activation: ClassVar[bool] = False
    """Whether the model's output has a restricted range, so that the last layer needs an
    activation."""
    max_classes: ClassVar[int | None] = None
    """The maximum number of classes of a label, or None for no limit."""
    shown_metrics: ClassVar[tuple[str, ...]] = ()
    """The names of the metrics that `make_metrics` returns, the most informative metric first."""

    @property
    def of_rows(self) -> BaseTask:
        """The task itself, as every supervised task reads rows with labels."""
        return self

    @property
    def usual_objective(self) -> str:
        """The default objective of a hyperparameter search, a key of the training history."""
        return f"val_{self.shown_metrics[0]}"

    @property
    def needs(self) -> str:
        """The requirement on every label for messages, such as "a whole number".

        The string is empty if every value is valid.
        """
        return ""

    def valid_labels(self, labels: np.ndarray) -> np.ndarray:
        """Returns whether each raw label is valid, [rows] bool.

        Callers call the method only if `needs` is not empty.
        """
        return np.ones(len(labels), bool)

    @property
    def takes_own_loss(self) -> bool:
        """Whether `train.loss` can be the user's own loss, which compares the model's whole output
        with the label.
        """
        return True

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """Returns the label in the form that the loss reads, [batch, 1].

        Args:
          column: the raw column.
          label: the name of the column, for messages.

        Returns:
          For a number float32, with NaN for a missing label. For a class its index as int64, with
          -1 if the label is missing or the train split does not contain the class.

        Raises:
          DataError: the task cannot use the type of the column.
        """
        raise NotImplementedError

    def has_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns which transformed labels are present, a bool tensor of the labels' shape."""
        raise NotImplementedError

    def check_classes(self, label: str, classes: tuple[str, ...]) -> None:
        """Raises TrainingError if the task cannot use the classes of the train split."""

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the name of each unit of a model's last layer.

        A warm start copies the weights of the units whose names are equal.
        """
        raise NotImplementedError

    def output_width(self, classes: tuple[str, ...]) -> int:
        """Returns how many numbers a model outputs per example, after the last activation."""
        return len(self.outputs(classes))

    @property
    def output_description(self) -> str:
        """A description of the numbers in a model's output, for messages."""
        raise NotImplementedError

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a layer that maps the logits of the last layer, [batch, units], to the output in
        float32.
        """
        raise NotImplementedError

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """Returns a model's last layer, including its activation; the layer is named `output`."""
        raise NotImplementedError

    def make_loss(self, problem: LabelStatistics) -> tf_keras.losses.Loss:
        """Returns a new instance of the task's default loss."""
        raise NotImplementedError

    def make_class_loss(
        self, problem: LabelStatistics, label_smoothing: float, gamma: float | None
    ) -> tf_keras.losses.Loss:
        """Returns a new cross-entropy loss, or a focal loss if `gamma` is not None."""
        raise NotImplementedError

    def logit_shift(self, class_weights: Sequence[float]) -> list[float]:
        """Returns the shift of each logit that class weights cause: log 2 for a weight of 2."""
        return [math.log(weight or 1.0) for weight in class_weights]

    def loss_unit(self, problem: LabelStatistics) -> float:
        """Returns the number by which the loss divides numeric labels and predictions."""
        del problem
        return 1.0

    def whole_loss(
        self, loss: tf_keras.losses.Loss, problem: LabelStatistics, degree: int = 1
    ) -> tf_keras.losses.Loss:
        """Returns a loss of the model's whole output, made from a loss of a number or of classes.

        Args:
          loss: a loss that compares the predicted number, or the predicted classes, with the label.
          problem: the learning problem.
          degree: 2 if the loss has the squared unit of the number, such as `mse`; otherwise 1.
        """
        del problem, degree
        return loss

    def make_metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns new instances of the metrics that training shows after each epoch."""
        raise NotImplementedError

    def measured(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the tensors that the Evaluator reads: `predictions`, and inputs of the project's
        own metrics.
        """
        return {"predictions": output}

    def measured_label(self, label: tf.Tensor, problem: LabelStatistics) -> tf.Tensor:
        """Returns the transformed label in the form that the Evaluator compares with
        predictions.
        """
        del problem
        return label

    def served(self, output: tf.Tensor, problem: LabelStatistics) -> dict[str, tf.Tensor]:
        """Returns the model's outputs by their name in a response, [batch, ...] each."""
        raise NotImplementedError


_TASKS = "trainer_module.families.supervised.tasks"
SUPERVISED_TASKS = {
    "binary": f"{_TASKS}.classes.BinaryTask",
    "multiclass": f"{_TASKS}.classes.MulticlassTask",
    "ordinal": f"{_TASKS}.classes.OrdinalTask",
    "regression": f"{_TASKS}.numbers.RegressionTask",
    "count": f"{_TASKS}.numbers.CountTask",
}
"""The import paths of the supervised tasks by their name in `task`."""
TASKS = {
    **SUPERVISED_TASKS,
    "control": "trainer_module.families.control.task.ControlTask",
    "generation": "trainer_module.families.generation.task.GenerationTask",
}
"""The import paths of all tasks by their name in `task`."""


def task_class(kind: str) -> type[LearningTask]:
    """Returns the class of a task by its name in the config."""
    task: type[LearningTask] = import_registered(TASKS[kind])
    return task


def supervised_class(kind: str) -> type[BaseTask]:
    """Returns the class of a supervised task by its name; raises TypeError if the task has no
    label.
    """
    task = task_class(kind)
    if not issubclass(task, BaseTask):
        raise TypeError(f"`task: {kind}` has no label")
    return task


def as_task(task: LearningTask | str) -> BaseTask:
    """Returns the supervised task for reading rows with labels.

    Args:
      task: a task, or the name of a supervised task without options.

    Raises:
      TypeError: the task does not learn from rows with labels.
    """
    settings = supervised_class(task)(kind=str(task)) if isinstance(task, str) else task
    if (supervised := settings.of_rows) is None:
        raise TypeError(f"`task: {settings.kind}` has no label")
    return supervised


def _task_type(tasks: dict[str, str]) -> Any:
    return named_or_mapping("Task", "What the model predicts.", tasks)


TaskSettings: TypeAlias = Annotated[LearningTask, Registered(TASKS, _task_type)]
