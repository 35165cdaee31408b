"""The peers in this environment: linear models and trees with their libraries' defaults."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.models.job import CORES, Job, Rows, megabytes, read_rows
from benchmarks.models.measuring import Trained

MAX_CATEGORIES = 255
"""The most categories of a column for gradient boosting; columns with more are used as numbers."""

Matrix = np.ndarray


class _Columns:
    """The columns of a job as a matrix of numbers and strings; dates become numbers."""

    def __init__(self, job: Job) -> None:
        self._job = job
        names = [name for name in job.columns if name not in job.dates]
        parts = [f"{name} {part}" for name in job.dates for part in _PARTS]
        self.names = [*names, *parts]
        numbers = {*job.numbers, *parts}
        self.numeric = [i for i, name in enumerate(self.names) if name in numbers]
        self.texts = [i for i, name in enumerate(self.names) if name in job.texts]
        self.categories = [
            i for i, name in enumerate(self.names) if name not in {*numbers, *job.texts}
        ]

    def read(self, rows: Rows) -> Matrix:
        """Returns [rows, columns]: numbers, NaN if missing, and strings, empty if missing."""
        found = np.empty((len(rows), len(self.names)), object)
        for index, row in enumerate(rows):
            cells = [
                _number(row[name]) if name in self._job.numbers else row[name]
                for name in self.names[: len(self.names) - len(_PARTS) * len(self._job.dates)]
            ]
            found[index] = cells + [v for name in self._job.dates for v in _parts(row[name])]
        return found

    def labels(self, rows: Rows) -> np.ndarray:
        """Returns the labels as numbers or as strings."""
        labels = np.array([row[self._job.label] for row in rows])
        return labels.astype(float) if self._job.is_regression else labels


_PARTS = ("time", "month", "day", "weekday", "hour")


def _parts(cell: str) -> list[float]:
    """Returns the seconds since 1970, and the parts of the calendar."""
    date = datetime.datetime.fromisoformat(cell.replace("/", "-"))
    date = date if date.tzinfo else date.replace(tzinfo=datetime.UTC)
    return [date.timestamp(), date.month, date.day, date.weekday(), date.hour]


def _number(cell: str) -> float:
    return float(cell or "nan")


def train_linear(job: Job) -> Trained:
    """Trains logistic or ridge regression on scaled numbers and one-hot categories."""
    columns = _Columns(job)
    return _fit(job, columns, make_pipeline(_wide(columns, columns.texts), _linear(job)))


def train_words(job: Job) -> Trained:
    """Trains logistic or ridge regression on TF-IDF of words and bigrams, and the columns."""
    columns = _Columns(job)
    terms = [(TfidfVectorizer(ngram_range=(1, 2)), i) for i in columns.texts]
    return _fit(job, columns, make_pipeline(_wide(columns, (), terms), _linear(job)))


def train_characters(job: Job) -> Trained:
    """Trains a linear SVC or ridge regression on TF-IDF of words and characters, and the
    columns.
    """
    columns = _Columns(job)
    terms = [
        (
            make_union(
                TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
            ),
            i,
        )
        for i in columns.texts
    ]
    model = Ridge() if job.is_regression else LinearSVC(random_state=job.seed)
    return _fit(job, columns, make_pipeline(_wide(columns, (), terms), model))


def train_boosting(job: Job) -> Trained:
    """Trains HistGradientBoosting on numbers and encoded categories."""
    columns = _Columns(job)
    texts = [*columns.categories, *columns.texts]
    rows = columns.read(read_rows(job.peers))
    few = [len({row[i] for row in rows}) <= MAX_CATEGORIES for i in texts]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    kind = HistGradientBoostingRegressor if job.is_regression else HistGradientBoostingClassifier
    model = make_pipeline(
        make_column_transformer(("passthrough", columns.numeric), (encoder, texts)),
        kind(
            categorical_features=[False] * len(columns.numeric) + few,
            random_state=job.seed,
        ),
    )
    return _fit(job, columns, model)


def _linear(job: Job) -> Any:
    return Ridge() if job.is_regression else LogisticRegression(max_iter=2000)


def _wide(columns: _Columns, texts: Sequence[int], terms: Sequence[tuple[Any, int]] = ()) -> Any:
    """Returns the transformer of the columns for a linear model.

    Args:
      columns: the columns of the job.
      texts: the columns of sentences that count as categories.
      terms: the transformers of the other columns of sentences.
    """
    categories = [*columns.categories, *texts]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), columns.numeric),
        (OneHotEncoder(handle_unknown="ignore"), categories),
        *terms,
    )


def _fit(job: Job, columns: _Columns, model: Any) -> Trained:
    """Fits an estimator of scikit-learn on the rows of the peers."""
    rows = read_rows(job.peers)
    model.fit(columns.read(rows), columns.labels(rows))
    predict: Callable[[Any], Any] = model.predict
    if hasattr(model, "predict_proba"):
        predict = model.predict_proba
    elif not job.is_regression:
        predict = _scores(model.decision_function)
    return Trained(
        rows=columns.read(read_rows(job.test)),
        take=lambda found, indices: found[indices],
        predict=predict,
        megabytes=len(pickle.dumps(model)) / 1e6,
        classes=() if job.is_regression else list(model.classes_),
    )


def _scores(decide: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
    """Returns a function with scores [rows, classes], also for two classes."""

    def predict(rows: Any) -> np.ndarray:
        found = decide(rows)
        return np.stack([-found, found], axis=1) if found.ndim == 1 else found

    return predict


def train_ydf(job: Job) -> Trained:
    """Trains YDF's gradient-boosted trees."""
    import ydf

    columns = _Columns(job)
    tasks = {True: ydf.Task.REGRESSION, False: ydf.Task.CLASSIFICATION}
    learner = ydf.GradientBoostedTreesLearner(
        label=job.label,
        task=tasks[job.is_regression],
        random_seed=job.seed,
        num_threads=CORES,
    )
    rows = read_rows(job.peers)
    given = _as_columns(columns, columns.read(rows))
    model = learner.train({**given, job.label: columns.labels(rows)}, verbose=0)
    folder = job.scratch("ydf")
    model.save(str(folder))
    classes = [] if job.is_regression else list(model.label_classes())

    def predict(found: dict[str, np.ndarray]) -> np.ndarray:
        scores = model.predict(found)
        return np.stack([1 - scores, scores], axis=1) if len(classes) == 2 else scores

    return Trained(
        rows=_as_columns(columns, columns.read(read_rows(job.test))),
        take=lambda found, indices: {name: column[indices] for name, column in found.items()},
        predict=predict,
        megabytes=megabytes(folder),
        classes=classes,
    )


def _as_columns(columns: _Columns, matrix: Matrix) -> dict[str, np.ndarray]:
    """Returns the columns by name, of float32 or strings."""
    numeric = {*columns.numeric}
    return {
        name: matrix[:, i].astype(np.float32 if i in numeric else str)
        for i, name in enumerate(columns.names)
    }
