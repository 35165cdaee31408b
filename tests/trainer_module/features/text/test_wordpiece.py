"""Pieces of words: those of the reference, and vocabularies that are learnt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from trainer_module.errors import DataError
from trainer_module.features.text.pieces import SPECIAL, LearntPieces, read_pieces
from trainer_module.features.text.wordpiece import split_into_pieces, split_words

BERT = Path(__file__).parents[2] / "models" / "data" / "bert"
REFERENCE = json.loads((BERT / "texts.json").read_text())
"""Texts, and the indices that transformers gives them (tools/make_bert_reference.py)."""
LONGEST = max(map(len, REFERENCE["ids"] + REFERENCE["cased_ids"]))


def ids_of(texts: list[str | bytes], max_tokens: int, lower: bool = True) -> list[list[int]]:
    path = tf.constant(str(BERT / "vocab.txt"))
    ids, size = split_into_pieces(split_words(tf.constant(texts), lower), path, max_tokens)
    assert ids.shape[1] == max_tokens
    assert size.numpy() == 500
    return [[int(index) for index in row] for row in ids.numpy()]


@pytest.mark.parametrize(("key", "lower"), [("ids", True), ("cased_ids", False)])
def test_pieces_are_those_of_the_reference(key: str, lower: bool) -> None:
    assert len(REFERENCE["texts"]) == 200
    found = ids_of(REFERENCE["texts"], LONGEST, lower)
    assert [[index for index in row if index] for row in found] == REFERENCE[key]


def test_long_texts_end_early_and_short_ones_are_filled_up() -> None:
    whole = ids_of(["The film was good"], 12)[0]
    assert whole[-1] == 0
    tokens = [index for index in whole if index]
    assert ids_of(["The film was good"], 4)[0] == [*tokens[:3], tokens[-1]]
    first, last = tokens[0], tokens[-1]
    assert ids_of(["", " \t ", "\x00"], 4) == [[first, last, 0, 0]] * 3


def test_invalid_and_long_texts_are_split() -> None:
    plain = ids_of(["the film was good"], 8)
    assert ids_of([b"the\xff film \xc3was good", "the film " * 20_000], 8) != plain
    assert ids_of([b"the\xff film was\xfe good"], 8) == plain
    unknown = ids_of(["x" * 100_000, "x" * 100], 8)
    assert unknown[0][1] == read_pieces(BERT).pieces.index("[UNK]")
    assert unknown[1][1] != unknown[0][1]


WORDS = {"played": 30, "playing": 20, "player": 9, "unplayed": 4, "été": 3, "y" * 101: 50, "q": 1}
COUNTS = [(word.encode(), count) for word, count in WORDS.items()]


def test_a_vocabulary_is_learnt_from_words() -> None:
    pieces = [piece.decode() for piece in LearntPieces(60)(COUNTS)]
    assert pieces[:5] == list(SPECIAL)
    assert {"played", "playing", "##ed", "é", "p", "q"} <= set(pieces)
    assert len(set(pieces)) == len(pieces) <= 60
    assert LearntPieces(60)(COUNTS[::-1]) == LearntPieces(60)(COUNTS)
    assert len(LearntPieces(30)(COUNTS)) == 30
    with pytest.raises(DataError, match="column 'review' of type: text has no word in any row"):
        LearntPieces(60, "'review'")([])


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt is missing"),
        (_write("vocab.txt", "[UNK]\n[PAD]\n"), "line is '[UNK]'; it must be [PAD]"),
        (_write("vocab.txt", "[PAD]\na\na\n"), "the piece 'a' is empty or occurs twice"),
        (_write("tokenizer_config.json", '{"strip_accents": false}'), "strip_accents is False"),
    ],
)
def test_unusable_vocabulary_is_refused(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    shutil.copy(BERT / "vocab.txt", tmp_path)
    change(tmp_path)
    with pytest.raises(DataError) as caught:
        read_pieces(tmp_path)
    assert message in str(caught.value)


def test_lower_case_follows_the_files(tmp_path: Path) -> None:
    shutil.copy(BERT / "vocab.txt", tmp_path)
    assert read_pieces(tmp_path).lower
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not read_pieces(tmp_path).lower
