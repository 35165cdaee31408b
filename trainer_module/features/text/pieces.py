"""Vocabularies of word pieces: learnt from the counts of words, or read from a published model."""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_module.errors import DataError
from trainer_module.features.vocabulary_orders import Counts, most_frequent
from trainer_module.published import local_folder

INSIDE = "##"
"""The prefix of a piece that does not begin a word."""

RAREST = 2
"""The smallest count of a pair that becomes a piece, as a rarer one could not be learnt."""

Pair = tuple[str, str]


def learn_pieces(counts: Mapping[str, int], size: int) -> list[str]:
    """Returns at most `size` pieces: the most frequent characters, and the pieces that they form.

    Args:
      counts: the number of occurrences of each word.
      size: the size of the vocabulary.
    """
    characters: Counter[str] = Counter()
    for word in sorted(counts):
        for piece in _characters(word):
            characters[piece] += counts[word]
    # Scripts with thousands of characters, such as Chinese, lose rare ones to other pieces.
    known = [piece for piece, _ in characters.most_common(size // 2)]
    pieces = dict.fromkeys(known)
    words = [(_characters(word), counts[word]) for word in sorted(counts)]
    words = [(parts, count) for parts, count in words if pieces.keys() >= set(parts)]
    pairs = _Pairs(words)
    while len(pieces) < size and (pair := pairs.most_frequent()):
        pieces[_joined(pair)] = None
        pairs.join(pair)
    return list(pieces)[:size]


class _Pairs:
    """The pairs of neighbouring pieces in all words, with their counts."""

    def __init__(self, words: list[tuple[list[str], int]]) -> None:
        self._words = words
        self._counts: Counter[Pair] = Counter()
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for place, (parts, count) in enumerate(words):
            for pair in itertools.pairwise(parts):
                self._counts[pair] += count
                self._places[pair].add(place)
        self._queue = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._queue)

    def most_frequent(self) -> Pair | None:
        """Returns the most frequent pair, ties in alphabetical order; None if all remaining pairs
        are rare.
        """
        while self._queue:
            count, pair = heapq.heappop(self._queue)
            # A pair whose count has changed is in the queue again with its new count.
            if -count == self._counts[pair] >= RAREST:
                return pair
        return None

    def join(self, pair: Pair) -> None:
        """Merges a pair into one piece wherever it occurs."""
        changes: Counter[Pair] = Counter()
        for place in self._places.pop(pair):
            parts, count = self._words[place]
            joined = _join(parts, pair)
            for old in itertools.pairwise(parts):
                changes[old] -= count
            for new in itertools.pairwise(joined):
                changes[new] += count
                self._places[new].add(place)
            self._words[place] = joined, count
        for other, change in changes.items():
            if change and other != pair:
                self._counts[other] += change
                heapq.heappush(self._queue, (-self._counts[other], other))
        del self._counts[pair]


def _characters(word: str) -> list[str]:
    return [word[0], *(INSIDE + character for character in word[1:])]


def _joined(pair: Pair) -> str:
    return pair[0] + pair[1].removeprefix(INSIDE)


def _join(parts: list[str], pair: Pair) -> list[str]:
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] = _joined(pair)
        else:
            joined.append(part)
    return joined


PADDING, UNKNOWN, FIRST, LAST, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL = (PADDING, UNKNOWN, FIRST, LAST, MASK)
"""The special pieces, with BERT's names and in its order."""

LONGEST_WORD = 100
"""The longest word in characters; longer words are unknown."""

WORDS_PER_PIECE = 4
"""The number of the most frequent words, per piece, that pieces are learnt from.

More words make learning slower."""

VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer_config.json"
"""Files of Hugging Face's models; the second one is optional."""


@dataclass(frozen=True)
class LearntPieces:
    """A vocabulary of pieces that is learnt from the words of the train split."""

    size: int
    """The most pieces, including the special ones."""
    columns: str = ""
    """The names of the columns, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the pieces by index, the special ones first; raises DataError without any
        word.
        """
        if not counts:
            raise DataError(
                f"column {self.columns} of type: text has no word in any row of the train split: "
                "leave it out by type: ignore."
            )
        words = {word.decode(): count for word, count in sorted(counts, key=most_frequent)}
        words = {word: count for word, count in words.items() if len(word) <= LONGEST_WORD}
        frequent = dict(itertools.islice(words.items(), WORDS_PER_PIECE * self.size))
        pieces = learn_pieces(frequent, max(0, self.size - len(SPECIAL)))
        return [piece.encode() for piece in (*SPECIAL, *pieces)]


@dataclass(frozen=True)
class GivenPieces:
    """A published vocabulary of pieces, in its order."""

    pieces: tuple[str, ...]
    lower: bool
    """Whether the pieces are for text in lower case, without accents."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the pieces, whatever the counts."""
        del counts
        return [piece.encode() for piece in self.pieces]


def read_pieces(folder: str | Path) -> GivenPieces:
    """Reads vocab.txt, and tokenizer_config.json if it exists, in Hugging Face's format.

    Args:
      folder: its path, or the name of a model that was fetched from the hub.

    Raises:
      DataError: they are missing or broken, or need unsupported options.
    """
    folder = Path(local_folder(str(folder)))
    path = folder / VOCABULARY
    lines = read_text(path).split("\n")
    pieces = tuple(line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1]))
    twice = [piece for piece, count in Counter(pieces).items() if count > 1 or not piece]
    if twice:
        raise DataError(f"{path}: the piece {twice[0]!r} is empty or occurs twice.")
    if pieces[:1] != (PADDING,):
        found = repr(pieces[0]) if pieces else "nothing"
        raise DataError(f"{path}: its first line holds {found}; it has to be {PADDING}.")
    for token in (UNKNOWN, FIRST, LAST):
        if token not in pieces:
            raise DataError(f"{path}: the piece {token} is missing, which the tokenizer needs.")
    return GivenPieces(pieces, _read_lower(folder / TOKENIZER))


def _read_lower(path: Path) -> bool:
    config = read_object(path) if path.is_file() else {}
    lower = bool(config.get("do_lower_case", True))
    for key, usual in {"strip_accents": lower, "tokenize_chinese_chars": True}.items():
        if config.get(key) not in (None, usual):
            raise DataError(
                f"{path}: {key} is {config[key]!r}; only {usual} is supported, as other values "
                "change the tokens; use another model."
            )
    return lower


def read_text(path: Path) -> str:
    """Returns the text of a file; raises DataError if it is missing or not UTF-8."""
    if not path.is_file():
        raise DataError(f"{path.parent}: {path.name} is missing.")
    try:
        return path.read_text(encoding="utf-8")
    except ValueError:
        raise DataError(f"{path}: it is no text in UTF-8; get the file again.") from None


def read_object(path: Path) -> Mapping[str, Any]:
    """Returns the JSON object in a file; raises DataError if there is none."""
    try:
        read = json.loads(read_text(path))
    except ValueError as error:
        raise DataError(f"{path}: it is no JSON ({error}); get the file again.") from None
    if not isinstance(read, dict):
        raise DataError(f"{path}: found a {type(read).__name__} instead of an object.")
    return read
