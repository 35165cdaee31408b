"""BERT on real Transform's output: what is learnt goes on, and weights bring their vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.trainer_data import Row, Transformed, transformed_once
from tests.support.trainings import train_whole
from tests.support.warm_data import given, load, prepare
from trainer_module.settings import LinearSchedule, TrainerSettings

BERT = Path(__file__).parent / "models" / "data" / "bert"


def renamed(row: Row) -> Row:
    """A word of the texts has gone, and there is another one."""
    return {
        name: value.replace("film", "movie") if isinstance(value, str) else value
        for name, value in row.items()
    }


@pytest.fixture(scope="module")
def later(opinions: Transformed, tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """The same some time later, with other words and therefore other pieces."""
    train, evaluation = (
        [renamed(row) for row in part] for part in (opinions.train, opinions.evaluation)
    )
    return transformed_once(
        tmp_path_factory, "later_opinions", train, evaluation, opinions.settings
    )


def pieces_of(data: Transformed) -> list[bytes]:
    return data.tft_output.vocabulary_by_name("title")


@pytest.mark.slow
def test_texts_become_their_pieces(opinions: Transformed) -> None:
    pieces = pieces_of(opinions)
    assert pieces[0] == b"[PAD]"
    assert {b"film", b"great", b"awful"} <= set(pieces)
    (title,) = opinions.problem.of_kind("text")
    assert title.vocabulary_size == len(pieces)
    found = opinions.transform([{**opinions.train[1], "title": "great film"}])["title"][0]
    names = [b"[CLS]", b"great", b"film", b"[SEP]"]
    assert [pieces[index] for index in found if index] == names


@pytest.mark.slow
def test_warm_start_keeps_the_vectors_of_known_pieces(
    opinions: Transformed, opinions_model: str, later: Transformed, tmp_path: Path
) -> None:
    job = prepare(later, tmp_path, opinions_model)
    old = load(opinions_model).get_layer("bert_words").get_weights()[0]
    new = job.model.get_layer("bert_words").get_weights()[0]
    before, after = pieces_of(opinions), pieces_of(later)
    assert before != after
    shared = set(before) & set(after)
    assert b"great" in shared
    for piece in shared:
        np.testing.assert_array_equal(new[after.index(piece)], old[before.index(piece)])
    assert any("values keep their" in note for note in job.notes)
    # A place in a text means the same whatever the pieces are.
    for layer in ("bert_positions", "bert_types"):
        old_rows, new_rows = (
            model.get_layer(layer).get_weights()[0] for model in (load(opinions_model), job.model)
        )
        np.testing.assert_array_equal(new_rows, old_rows)
    assert not [note for note in job.notes if "initialised anew" in note and "layer" in note]


@pytest.mark.slow
def test_weights_bring_their_vocabulary_and_training_defaults(
    opinions: Transformed, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    text = {"type": "text", "max_tokens": 8}
    settings = TrainerSettings.model_validate(
        {
            "label": opinions.settings.label,
            "task": "binary",
            "features": {"title": text},
            "model": {"kind": "bert", "weights": str(BERT)},
        }
    )
    assert settings.train.epochs == 4
    assert settings.train.optimizer.layer_decay == 0.9
    assert isinstance(settings.train.learning_rate, LinearSchedule)
    data = transformed_once(
        tmp_path_factory, "fine_tuned", opinions.train[:60], opinions.evaluation[:20], settings
    )
    assert pieces_of(data) == (BERT / "vocab.txt").read_bytes().split()
    trained = train_whole(given(data, tmp_path, None, epochs=1))
    assert np.isfinite(trained.history["val_loss"]).all()
