"""Linear and logistic regression on all columns and on the TF-IDF of texts: fitted by scikit-learn,
exported as a layer.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf
import tf_keras
from threadpoolctl import threadpool_limits

from trainer_module.data.dealing import Folds
from trainer_module.errors import MemberLimitError
from trainer_module.families.supervised.ensemble.member import Build, Member, as_outputs
from trainer_module.families.supervised.ensemble.weights import Labels
from trainer_module.families.supervised.trees.estimators import (
    as_matrix,
    column_means,
    predict,
    sample,
    select_rows,
)
from trainer_module.families.supervised.trees.forest import TreeColumn
from trainer_module.families.supervised.trees.growing import TreeExamples
from trainer_module.families.supervised.trees.model import as_list, flatten
from trainer_module.machine import free_memory
from trainer_module.plain_layer import PlainLayer
from trainer_module.problem import Problem
from trainer_module.settings import Task


@dataclass(frozen=True)
class Fitting:
    """The regularisation of a linear model, and the gradient with which its fit ends."""

    strengths: tuple[float, ...]
    """The candidates of the inverse strength of the L2 regularisation, from strong to weak."""
    default: float
    """The inverse strength where no unseen examples choose one."""
    tolerance: float
    """Logistic regression ends when no element of the gradient is larger."""

    def fit(
        self,
        problem: Problem,
        matrix: Any,
        label: np.ndarray,
        weight: np.ndarray | None,
        strength: float,
    ) -> Any:
        """Returns scikit-learn's model of a matrix [examples, n], with an inverse strength."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge

        # The operations on vectors are so short that several threads slow them down.
        with threadpool_limits(1), warnings.catch_warnings():
            if not problem.task.is_classification:
                return Ridge(1 / strength, solver="auto").fit(matrix, label, weight)
            model = LogisticRegression(C=strength, max_iter=ITERATIONS, tol=self.tolerance)
            # More iterations hardly change the predictions.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(matrix, label, weight)


COLUMN_FITTING = Fitting((1e-2, 0.1, 1.0, 10.0), 1.0, 1e-4)
"""How the model is fitted without texts."""

TEXT_FITTING = Fitting((0.1, 1.0, 3.0, 10.0), 3.0, 3e-4)
"""How the model is fitted with texts, whose TF-IDF are small numbers. A tolerance of 1e-4 takes 1.5
times as long, with the same share of right classes."""

MAX_WORK_TO_TRY, MAX_WORK = 20_000_000, 1_000_000_000
"""The largest number of matrix entries times outputs for which several regularisations and all
folds are tried, and for which a linear model is fitted at all."""

BYTES_PER_WEIGHT = 400
"""The memory in bytes that logistic regression takes for each weight: L-BFGS keeps the last steps.
"""

ITERATIONS = 200
"""The largest number of iterations of logistic regression."""

CLIP = 10.0
"""The limit of standardised numbers, so that an outlier moves the sum by a bounded amount."""


def fit_linear(examples: TreeExamples, problem: Problem, folds: Folds, seed: int) -> Member:
    """Fits a linear model on all examples, with the regularisation that suits unseen examples best.

    Args:
      examples: the examples of the train split.
      problem: the features and the label.
      folds: the parts that are held out, from one model each.
      seed: the seed of the sample of a large split.
    """
    means = column_means(examples)
    columns, scales = encode(examples, means)
    sizes = bag_sizes(problem)
    bags = [(examples.bags[name], size) for name, size in sizes.items()]
    label, weight = examples.target(problem), examples.weight
    fitting = TEXT_FITTING if bags else COLUMN_FITTING
    labels = Labels(problem, examples.label, weight)

    def matrix(rows: np.ndarray) -> Any:
        # A matrix of all rows would take several times the memory of the bags.
        terms = (_term_matrix(bag[rows], size) for bag, size in bags)
        return scipy.sparse.hstack([columns[rows], *terms], "csr")

    def predict_fold(strength: float, fold: int) -> np.ndarray:
        rows = sample(folds.train_rows(fold), seed)
        model = fitting.fit(problem, matrix(rows), label[rows], select_rows(weight, rows), strength)
        return as_outputs(problem, predict(model, problem, matrix(folds.held_out(fold))))

    entries = columns.nnz + sum(np.count_nonzero(bag[:, :, 1]) for bag, _ in bags)
    work = entries * problem.output_units
    _check_size(problem, work, columns.shape[1] + sum(sizes.values()))
    is_quick = work <= MAX_WORK_TO_TRY
    unseen = np.full((len(label), problem.output_units), np.nan)
    strength = fitting.default
    first = folds.held_out(0)
    if len(first):
        candidates = fitting.strengths if is_quick else (strength,)
        tried = {strength: predict_fold(strength, 0) for strength in candidates}
        strength = min(tried, key=lambda one: labels.only(first).loss(tried[one]))
        unseen[first] = tried[strength]
    # Each fold costs as much as the first; one is enough to weight the model.
    for fold in range(1, folds.count if is_quick else 1):
        if len(folds.held_out(fold)):
            unseen[folds.held_out(fold)] = predict_fold(strength, fold)
    rows = sample(np.arange(len(label)), seed)
    model = fitting.fit(problem, matrix(rows), label[rows], select_rows(weight, rows), strength)

    kernel, others, bias = _coefficients(model, problem, examples.columns)
    codes = sum(column.codes for column in examples.columns)
    arrays = {
        "kernel": kernel,
        "categories": others[:codes],
        "bias": bias,
        "means": means,
        "scales": scales,
        **({"terms": others[codes:]} if sizes else {}),
    }
    note = f"regularisation of the linear model: C = {strength:g}"
    return Member(build_linear(problem, examples.columns, arrays), unseen, (note,), arrays)


def _check_size(problem: Problem, work: int, width: int) -> None:
    """Raises MemberLimitError if a fit takes too long or too much memory.

    Args:
      problem: the task.
      work: the number of matrix entries times outputs.
      width: the number of columns of the matrix.
    """
    weights = width * problem.output_units
    if max(work, weights) > MAX_WORK:
        raise MemberLimitError("the linear model would take too long for so many rows and classes")
    if problem.task.is_classification and weights * BYTES_PER_WEIGHT > free_memory():
        raise MemberLimitError(
            "the linear model of so many classes and terms takes too much memory"
        )


def build_linear(
    problem: Problem, columns: Sequence[TreeColumn], arrays: Mapping[str, np.ndarray]
) -> Build:
    """Returns the function that adds a linear model to a Keras model.

    Args:
      problem: the features and the label.
      columns: the columns of the linear model, in addition to the bags of texts.
      arrays: the arguments of `LinearColumns.fill`.
    """

    def build(inputs: Any) -> tf.Tensor:
        used = {column.feature for column in columns}
        names = [feature.name for feature in problem.features if feature.name in used]
        sizes = bag_sizes(problem)
        layer = LinearColumns(
            _codes(columns, names),
            problem.output_units,
            len(columns),
            sum(column.codes for column in columns),
            list(sizes.values()),
            name=problem.layer_name("linear"),
        )
        logits = layer([inputs[name] for name in (*names, *sizes)])
        layer.fill(**arrays)
        return problem.make_activation()(logits)

    return build


def bag_sizes(problem: Problem) -> dict[str, int]:
    """Returns the number of terms of each feature that is a bag, in the order of the features."""
    return {feature.name: feature.vocabulary_size for feature in problem.features if feature.is_bag}


def _term_matrix(bag: np.ndarray, size: int) -> Any:
    """Returns the TF-IDF of a bag, a sparse matrix [examples, size]."""
    is_term = bag[:, :, 1] != 0
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(is_term, 1))])
    indices, values = bag[is_term].T
    parts = (values.astype(np.float64), indices.astype(np.int32), starts)
    return scipy.sparse.csr_matrix(parts, shape=(len(bag), size))


def _codes(columns: Sequence[TreeColumn], names: Sequence[str]) -> list[int]:
    by_feature = {column.feature: column.codes for column in columns}
    return [by_feature[name] for name in names]


def encode(examples: TreeExamples, means: np.ndarray) -> tuple[Any, np.ndarray]:
    """Returns the standardised numbers and the one-hot categories, a sparse matrix [examples, n],
    and the reciprocal standard deviation of each column, 0 for categories.
    """
    numbers = [i for i, column in enumerate(examples.columns) if not column.codes]
    if not examples.columns:
        return scipy.sparse.csr_matrix((len(examples.label), 0)), np.zeros(0, np.float32)
    values = as_matrix(examples.values, means)
    deviations = values[:, numbers].std(0, dtype=np.float64)
    scales = np.zeros(len(examples.columns), np.float32)
    scales[numbers] = np.divide(1, deviations, out=np.zeros_like(deviations), where=deviations > 0)
    scaled = np.clip((values[:, numbers] - means[numbers]) * scales[numbers], -CLIP, CLIP)
    rows = np.arange(len(values))
    parts = [scipy.sparse.csr_matrix(scaled, dtype=np.float64)]
    for values_of, column in zip(examples.values, examples.columns, strict=True):
        if column.codes:
            places = (np.ones(len(rows)), (rows, values_of))
            parts.append(scipy.sparse.csr_matrix(places, shape=(len(rows), column.codes)))
    return scipy.sparse.hstack(parts, "csr"), scales


ABSENT_LOGIT = -20.0
"""The logit of a class without examples."""


def _coefficients(
    model: Any, problem: Problem, columns: Sequence[TreeColumn]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the weights of the numbers [columns, units], of the codes and terms [n, units], and
    the bias [units].
    """
    units = problem.output_units
    kernel = np.atleast_2d(model.coef_).T
    bias = np.atleast_1d(np.asarray(model.intercept_, np.float64))
    if problem.task is Task.MULTICLASS:
        kernel, bias = _by_class(model, kernel, bias, units)
    if problem.class_shift:
        bias = bias - np.asarray(problem.class_shift)
    numbers = [i for i, column in enumerate(columns) if not column.codes]
    of_numbers = np.zeros((len(columns), units))
    of_numbers[numbers] = kernel[: len(numbers)]
    return of_numbers, kernel[len(numbers) :], bias


def _by_class(
    model: Any, kernel: np.ndarray, bias: np.ndarray, units: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights and the bias of all classes, if only some occur in the examples."""
    if kernel.shape[1] == 1:  # Of two classes only the logit of the second is fitted.
        kernel, bias = np.concatenate([-kernel, kernel], 1) / 2, np.array([-bias[0], bias[0]]) / 2
    classes = np.asarray(model.classes_, int)
    all_kernels, all_biases = np.zeros((len(kernel), units)), np.full(units, ABSENT_LOGIT)
    all_kernels[:, classes], all_biases[classes] = kernel, bias
    return all_kernels, all_biases


@tf_keras.saving.register_keras_serializable("scopeline")
class LinearColumns(PlainLayer):
    """Computes a weighted sum of numbers, categories and terms, [batch, units], from a list of
    features, [batch, n], and of bags, [batch, terms, 2].
    """

    def __init__(
        self,
        codes: Sequence[int],
        units: int,
        columns: int,
        rows: int,
        bags: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Stores the sizes, from which the layer can be built.

        Args:
          codes: the number of codes of each feature's categories; 0 for numbers.
          units: the number of outputs.
          columns: the number of columns.
          rows: the number of codes of all categorical columns.
          bags: the number of terms of each bag.
          options: Keras's options.
        """
        super().__init__(**{"trainable": False, "dtype": tf.float32, **options})
        self._codes, self._units, self._columns, self._rows = list(codes), units, columns, rows
        self._bags = list(bags)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        sizes = {"units": self._units, "columns": self._columns, "rows": self._rows}
        lists = {"codes": self._codes, "bags": self._bags}
        return {**super().get_config(), **sizes, **lists}

    def build(self, input_shape: Sequence[tf.TensorShape]) -> None:
        """Creates the weights, filled with zeros."""
        units, columns, rows = self._units, self._columns, self._rows

        def add(name: str, *shape: int) -> tf.Variable:
            return self.add_weight(name, shape, tf.float32, "zeros", trainable=False)

        self.means, self.scales = add("means", columns), add("scales", columns)
        self.kernel, self.bias = add("kernel", columns, units), add("bias", units)
        if rows:
            self.categories = add("categories", rows, units)
        if self._bags:
            self.terms = add("terms", sum(self._bags), units)
        shapes = as_list(input_shape)[: len(self._codes)]
        widths = [tf.TensorShape(shape)[1:].num_elements() for shape in shapes]
        self._offsets = _offsets(self._codes, widths)
        super().build(input_shape)

    def fill(
        self,
        kernel: np.ndarray,
        categories: np.ndarray,
        bias: np.ndarray,
        means: np.ndarray,
        scales: np.ndarray,
        terms: np.ndarray | None = None,
    ) -> None:
        """Copies the fitted numbers into the weights."""
        self.kernel.assign(kernel)
        self.bias.assign(bias)
        self.means.assign(means)
        self.scales.assign(scales)
        if self._rows:
            self.categories.assign(categories)
        if terms is not None:
            self.terms.assign(terms)

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the weighted sums with the bias."""
        features = as_list(inputs)
        columns, bags = features[: len(self._codes)], features[len(self._codes) :]
        total, begin = self._sum_of_columns(columns) if columns else 0.0, 0
        for bag, size in zip(bags, self._bags, strict=True):
            weights = tf.gather(self.terms, tf.cast(bag[:, :, 0], tf.int32) + begin)
            total += tf.einsum("bt,btn->bn", bag[:, :, 1], weights)
            begin += size
        return total + self.bias

    def _sum_of_columns(self, columns: Sequence[tf.Tensor]) -> tf.Tensor:
        values = tf.concat(list(map(flatten, columns, self._codes)), 1)
        numbers = tf.where(tf.math.is_nan(values), self.means, values)
        numbers = tf.clip_by_value((numbers - self.means) * self.scales, -CLIP, CLIP)
        total = tf.matmul(numbers, self.kernel)
        if not self._rows:
            return total
        categorical, offsets = self._offsets
        rows = tf.cast(tf.gather(values, categorical, axis=1), tf.int32) + offsets
        return total + tf.reduce_sum(tf.gather(self.categories, rows), 1)


def _offsets(codes: Sequence[int], widths: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns the categorical columns, and the first row of each of them in `categories`."""
    columns, offsets = [], []
    column = row = 0
    for count, width in zip(codes, widths, strict=True):
        for _ in range(width):
            if count:
                columns.append(column)
                offsets.append(row)
                row += count
            column += 1
    return columns, offsets
