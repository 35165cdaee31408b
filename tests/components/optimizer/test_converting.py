"""Models converted for other runtimes, in processes of their own, against TensorFlow's answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from exported_models import ask, build, export, make_sample

from components.optimizer.converting.parent import convert_in_child
from trainer_module.problem import Problem, TransformedFeature
from trainer_module.variants.running import open_variant

TRIPS = Problem(
    "binary",
    "tipped",
    ("no", "yes"),
    (
        TransformedFeature("amount", "numeric", (2,)),
        TransformedFeature("area", "categorical", (1,), vocabulary_size=6),
    ),
)


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(build("mlp", TRIPS), TRIPS, tmp_path_factory.mktemp("trips") / "model")


def test_litert_gives_what_tensorflow_does_for_any_number_of_rows(
    trips: Path, tmp_path: Path
) -> None:
    sample = make_sample(TRIPS)
    variant = convert_in_child("float", trips, sample, tmp_path / "float")
    opened = open_variant(tmp_path / "float")
    assert opened.variant == variant
    for rows in (1, 40, 7, 0):
        some = {name: values[:rows] for name, values in sample.items()}
        given, right = opened.predict(some), ask(trips, some)
        assert given.keys() == right.keys() == {"predictions", "scores"}
        for name, expected in right.items():
            np.testing.assert_allclose(given[name], expected, atol=1e-6)
    answer = opened.answer(opened.predict(sample))
    assert answer["class"].tolist() == [
        [b"no", b"yes"][int(score > 0.5)] for score in answer["scores"][:, 1]
    ]
    assert answer["classes"].tolist() == [[b"no", b"yes"]] * 40
