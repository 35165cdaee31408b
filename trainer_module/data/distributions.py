"""How the numbers of the train split are distributed, for models that scale them themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trainer_module.data.examples import Content, Reader, Tensors
from trainer_module.spread import spread_rows

MOST = 65_536
"""Examples that are enough to know the quartiles by."""


def measure_quartiles(reader: Reader, content: Content) -> dict[str, np.ndarray]:
    """Of each numeric feature [5, n]: the least value, the quartiles, and the largest.

    Of many examples, some from all over the split tell.

    Args:
      reader: of the train split.
      content: what it found.
    """
    names = [feature.name for feature in reader.problem.of_kind("numeric")]
    if not names:
        return {}
    rows = spread_rows(content.examples, MOST)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    begin = 0
    for batch in _batches(reader, content, names):
        end = begin + len(batch[names[0]])
        here = rows[slice(*np.searchsorted(rows, [begin, end]))] - begin
        for name in names:
            parts[name].append(batch[name].numpy()[here])
        begin = end
    return {name: _quartiles(np.concatenate(found)) for name, found in parts.items()}


def _batches(reader: Reader, content: Content, names: list[str]) -> Iterator[Tensors]:
    """All usable examples: of a split that memory does not hold, the numbers alone are read."""
    if content.tensors is not None:
        yield content.tensors
        return
    needed = {*names, reader.problem.label, reader.problem.weight or reader.problem.label}
    spec = {name: reader.spec[name] for name in needed}
    yield from replace(reader, spec=spec).stream(reader.records())


def _quartiles(values: np.ndarray) -> np.ndarray:
    return np.quantile(values.reshape(len(values), -1), np.linspace(0, 1, 5), axis=0)
