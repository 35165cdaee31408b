"""Vocabularies of word pieces: learned from the counts of words, or read from a published model."""

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

MIN_COUNT = 2
"""The minimum count of a pair that becomes a piece; a model could not learn rarer pieces."""

Pair = tuple[str, str]
"""Two pieces that are neighbours in a word."""


def learn_pieces(counts: Mapping[str, int], size: int) -> list[str]:
    """Returns the most frequent characters, and the most frequent pieces that they form.

    Args:
      counts: the number of occurrences of each word.
      size: the maximum number of pieces.
    """
    characters: Counter[str] = Counter()
    for word in sorted(counts):
        for piece in _characters(word):
            characters[piece] += counts[word]
    # Half of the pieces are characters, so scripts such as Chinese lose rare characters.
    pieces = dict.fromkeys(piece for piece, _ in characters.most_common(size // 2))
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
        self._word_indices: defaultdict[Pair, set[int]] = defaultdict(set)
        for index, (parts, count) in enumerate(words):
            for pair in itertools.pairwise(parts):
                self._counts[pair] += count
                self._word_indices[pair].add(index)
        self._queue = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._queue)

    def most_frequent(self) -> Pair | None:
        """Returns the most frequent pair, or None if no pair has MIN_COUNT occurrences.

        Among equally frequent pairs, the first pair in alphabetical order is returned.
        """
        while self._queue:
            count, pair = heapq.heappop(self._queue)
            # A pair whose count has changed is in the queue again with its new count.
            if -count == self._counts[pair] >= MIN_COUNT:
                return pair
        return None

    def join(self, pair: Pair) -> None:
        """Merges a pair into one piece wherever it occurs."""
        changes: Counter[Pair] = Counter()
        for index in self._word_indices.pop(pair):
            parts, count = self._words[index]
            joined = _join(parts, pair)
            for old in itertools.pairwise(parts):
                changes[old] -= count
            for new in itertools.pairwise(joined):
                changes[new] += count
                self._word_indices[new].add(index)
            self._words[index] = joined, count
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
"""The special pieces, with BERT's names and in BERT's order."""

LONGEST_WORD = 100
"""The maximum length of a word in characters; the piece of a longer word is `UNKNOWN`."""

WORDS_PER_PIECE = 4
"""Pieces are learned from the `WORDS_PER_PIECE * size` most frequent words, as more words would be
slow."""

VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer_config.json"
"""The names of files of Hugging Face's models; the tokenizer's config is optional."""


@dataclass(frozen=True)
class LearntPieces:
    """A vocabulary of pieces that is learned from the words of the train split."""

    size: int
    """The maximum number of pieces, including the special pieces."""
    columns: str = ""
    """The names of the columns, for messages."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the special pieces and then the learned pieces.

        Raises:
          DataError: there is no word.
        """
        if not counts:
            raise DataError(
                f"column {self.columns} of type: text has no word in any row of the train split; "
                "set type: ignore for the column."
            )
        words = {word.decode(): count for word, count in sorted(counts, key=most_frequent)}
        words = {word: count for word, count in words.items() if len(word) <= LONGEST_WORD}
        frequent = dict(itertools.islice(words.items(), WORDS_PER_PIECE * self.size))
        pieces = learn_pieces(frequent, max(0, self.size - len(SPECIAL)))
        return [piece.encode() for piece in (*SPECIAL, *pieces)]


@dataclass(frozen=True)
class GivenPieces:
    """The vocabulary of pieces of a published model."""

    pieces: tuple[str, ...]
    lower: bool
    """Whether text has to be converted to lower case and loses its accents."""

    def __call__(self, counts: Counts) -> list[bytes]:
        """Returns the pieces; the counts have no effect."""
        del counts
        return [piece.encode() for piece in self.pieces]


def read_pieces(folder: str | Path) -> GivenPieces:
    """Reads `vocab.txt`, and `tokenizer_config.json` if it exists, in Hugging Face's format.

    Args:
      folder: the path of the folder, or the name of a model that was downloaded from the hub.

    Raises:
      DataError: `vocab.txt` is missing, a file is invalid, or a tokenizer option is not supported.
    """
    folder = Path(local_folder(str(folder)))
    path = folder / VOCABULARY
    lines = read_text(path).split("\n")
    pieces = tuple(line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1]))
    invalid = [piece for piece, count in Counter(pieces).items() if count > 1 or not piece]
    if invalid:
        raise DataError(f"{path}: the piece {invalid[0]!r} is empty or occurs twice.")
    if pieces[:1] != (PADDING,):
        content = repr(pieces[0]) if pieces else "empty"
        raise DataError(f"{path}: the first line is {content}; it must be {PADDING}.")
    for token in (UNKNOWN, FIRST, LAST):
        if token not in pieces:
            raise DataError(f"{path}: the piece {token} is missing; the tokenizer requires it.")
    return GivenPieces(pieces, _read_lower(folder / TOKENIZER))


def _read_lower(path: Path) -> bool:
    config = read_object(path) if path.is_file() else {}
    lower = bool(config.get("do_lower_case", True))
    for key, supported in {"strip_accents": lower, "tokenize_chinese_chars": True}.items():
        if config.get(key) not in (None, supported):
            raise DataError(
                f"{path}: {key} is {config[key]!r}; only {supported} is supported, as other values "
                "change the tokens. Use another model."
            )
    return lower


def read_text(path: Path) -> str:
    """Returns the text of a file; raises DataError if it is missing or not UTF-8."""
    if not path.is_file():
        raise DataError(f"{path.parent}: {path.name} is missing.")
    try:
        return path.read_text(encoding="utf-8")
    except ValueError:
        raise DataError(
            f"{path}: the file is not text in UTF-8; download the file again."
        ) from None


def read_object(path: Path) -> Mapping[str, Any]:
    """Returns the JSON object in a file; raises DataError if the file has no JSON object."""
    try:
        content = json.loads(read_text(path))
    except ValueError as error:
        raise DataError(
            f"{path}: the file is not JSON ({error}); download the file again."
        ) from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: expected a JSON object, found a {type(content).__name__}; download the file "
            "again."
        )
    return content
