"""Words of a column are inputs where they predict the label better than its categories."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from components.column_types.choice import Choice
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts
from components.column_types.words import choose_words

ROWS = 600
RANDOM = np.random.default_rng(1)
POWER = RANDOM.choice([1.2, 1.6, 2.0, 3.0], ROWS)
TURBO = RANDOM.random(ROWS) < 0.4
SERIAL = RANDOM.integers(200, size=ROWS)
ENGINES = [
    f"{p}L{' turbo' if t else ''} x{s}" for p, t, s in zip(POWER, TURBO, SERIAL, strict=True)
]
PRICE = np.exp(POWER + TURBO + RANDOM.normal(0, 0.2, ROWS))
CITIES = [f"city {s % 25}" for s in SERIAL]
EFFECT = np.random.default_rng(2).normal(size=25)[SERIAL % 25] + RANDOM.normal(0, 0.2, ROWS)


def choose(
    label: np.ndarray, is_class: bool = False, **columns: list[str]
) -> tuple[dict[str, Choice], dict[str, Choice]]:
    """The choices by the facts alone, and those that the label changes."""
    arrays = {name: pa.array([v.encode() for v in values]) for name, values in columns.items()}
    arrays["size"] = pa.array(RANDOM.random(ROWS), pa.float32())
    facts = collect_facts(arrays, {})
    choices = choose_types(facts)
    return choices, choose_words(facts, choices, arrays, pa.array(label), is_class)


@pytest.mark.parametrize("is_class", [False, True])
def test_words_that_predict_better_than_categories_are_inputs(is_class: bool) -> None:
    label = np.where(np.median(PRICE) < PRICE, "high", "low") if is_class else PRICE
    names = [f"{engine} no {row}" for row, engine in enumerate(ENGINES)]
    plain, found = choose(label, is_class, engine=ENGINES, name=[n[:-3] for n in names])
    assert plain["engine"].settings == {"type": "categorical"}
    assert found["engine"].settings == {"type": "categorical", "words": 64}
    assert "64 most frequent words help to predict the label" in found["engine"].reason


def test_words_that_do_not_predict_the_label_are_no_inputs() -> None:
    assert choose(RANDOM.permutation(PRICE), engine=ENGINES)[1] == {}
    assert choose(EFFECT, city=CITIES)[1] == {}, "the category predicts as well"
    assert choose(np.full(ROWS, None), engine=ENGINES)[1] == {}, "no label is known"


def test_words_of_sentences_are_inputs_beside_another_column() -> None:
    sentences = [f"It has a {engine} {row}, he said" for row, engine in enumerate(ENGINES)]
    plain, found = choose(PRICE, ad=sentences)
    assert found["ad"].settings == {**plain["ad"].settings, "words": 64}
    arrays = {"ad": pa.array(sentences)}
    facts = collect_facts(arrays, {})
    assert choose_words(facts, choose_types(facts), arrays, pa.array(PRICE), False) == {}


def test_only_the_first_words_of_a_text_count() -> None:
    long = ["word " * 200_000, *ENGINES[1:]]
    assert choose(PRICE, engine=long)[1]["engine"].settings["words"] == 64
    late = [f"{'a b ' * 15}{engine}" for engine in ENGINES]
    assert choose(PRICE, engine=late)[1] == {}, "a model reads the first 30 words"
