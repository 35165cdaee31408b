"""One load of each graph that Transform applies, however many spans and splits it is applied to.

TFX Transform has a pipeline step per span and split, and each of them loads the graph for itself:
half a second each, which is most of what a window of small spans takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tensorflow_transform.beam import impl

_MOST_GRAPHS = 8
"""What is kept: a run has one for its analyses, at times a few, and one for the transformation."""


def share_transform_graphs() -> None:
    """Lets the steps of this process share graphs; calling it again changes nothing."""
    step: Any = impl._RunMetaGraphDoFn
    state = step._GraphStateV2
    if not isinstance(state, type):
        return

    @lru_cache(_MOST_GRAPHS)
    def load(folder: str, inputs: frozenset[str], excluded: frozenset[str]) -> Any:
        return state(folder, set(inputs), list(excluded))

    def shared(folder: str, inputs: Iterable[str], excluded: Iterable[str]) -> Any:
        # The folder has a name of its own for each run, and what is loaded may serve threads.
        return load(str(folder), frozenset(inputs), frozenset(excluded))

    step._GraphStateV2 = staticmethod(shared)
