"""The peers: scikit-learn's linear models and gradient boosting, with their defaults.

For tables of text alone: logistic regression on TF-IDF of words and bigrams.
"""

from __future__ import annotations

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from benchmarks.models.tables import Rows, Table
from trainer_module.settings import Task

MAX_CATEGORIES = 255
"""The most categories of a column for gradient boosting; columns with more are used as numbers."""


def predictions(
    table: Table, numbers: frozenset[str], train: Rows, test: Rows, seed: int
) -> dict[str, np.ndarray]:
    """Returns each peer's predictions for the test rows: numbers, or scores by sorted class."""
    columns = [name for name in train[0] if name != table.label]
    numeric = [i for i, name in enumerate(columns) if name in numbers]
    texts = [i for i, name in enumerate(columns) if name not in numbers]
    inputs, test_inputs = (_matrix(rows, columns, numbers) for rows in (train, test))
    labels = np.array([row[table.label] for row in train])
    is_regression = table.task is Task.REGRESSION
    labels = labels.astype(float) if is_regression else labels
    if tuple(columns) == table.texts:
        terms = TfidfVectorizer(ngram_range=(1, 2))
        model = make_pipeline(terms, LogisticRegression(max_iter=2000)).fit(inputs[:, 0], labels)
        return {"linear": model.predict_proba(test_inputs[:, 0])}
    linear = make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numeric),
            (OneHotEncoder(handle_unknown="ignore"), texts),
        ),
        Ridge() if is_regression else LogisticRegression(max_iter=2000),
    )
    few = [len({row[i] for row in inputs}) <= MAX_CATEGORIES for i in texts]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    boosting = HistGradientBoostingRegressor if is_regression else HistGradientBoostingClassifier
    boosted = make_pipeline(
        make_column_transformer(("passthrough", numeric), (encoder, texts)),
        boosting(categorical_features=[False] * len(numeric) + few, random_state=seed),
    )
    found = {}
    for name, model in {"linear": linear, "boosting": boosted}.items():
        model.fit(inputs, labels)
        found[name] = (
            model.predict(test_inputs) if is_regression else model.predict_proba(test_inputs)
        )
    return found


def _matrix(rows: Rows, columns: list[str], numbers: frozenset[str]) -> np.ndarray:
    """Returns [rows, columns] of numbers, NaN if missing, and texts, empty if missing."""
    cells = [
        [float(row[name] or "nan") if name in numbers else row[name] for name in columns]
        for row in rows
    ]
    return np.array(cells, object)
