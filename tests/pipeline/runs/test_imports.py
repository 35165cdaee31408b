"""The garbage collector pauses during imports."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from pipeline.runs.imports import YOUNG, frozen_imports


class Node:
    """Something that can refer to itself."""

    own: Node


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


def test_no_garbage_collection_during_imports() -> None:
    before = gc.get_freeze_count()
    with frozen_imports():
        assert not gc.isenabled()
        nodes = [Node() for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_threshold()[0] == YOUNG
    assert gc.get_freeze_count() >= before + len(nodes)


def test_garbage_after_imports_is_collected() -> None:
    with frozen_imports():
        pass
    node = Node()
    node.own = node
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None
