"""Learns the pieces that words are best made of, from how often each word occurs.

Pairs of pieces that stand beside each other most often become one piece, again and again (Sennrich
et al., 2016, arXiv:1508.07909), as Hugging Face's trainer of WordPiece has it. The learner that
comes with tensorflow-text finds similar ones in minutes where this takes seconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping

INSIDE = "##"
"""Begins a piece that does not begin a word."""

RAREST = 2
"""A pair that occurs less often is no piece: it would teach nothing."""

Pair = tuple[str, str]


def learn_pieces(counts: Mapping[str, int], size: int) -> list[str]:
    """At most `size` pieces: characters, the most frequent ones first, and what they make up.

    Args:
      counts: of each word.
      size: of the vocabulary.
    """
    characters: Counter[str] = Counter()
    for word in sorted(counts):
        for piece in _characters(word):
            characters[piece] += counts[word]
    # Of thousands of them, as Chinese has, the rare ones leave room for other pieces.
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
    """The pairs of neighbours in all words, with how often each occurs."""

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
        """Of equals the first in the alphabet; None if all that is left is rare."""
        while self._queue:
            count, pair = heapq.heappop(self._queue)
            # What has changed since it was put there is there a second time.
            if -count == self._counts[pair] >= RAREST:
                return pair
        return None

    def join(self, pair: Pair) -> None:
        """Makes one piece of a pair wherever it stands."""
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
