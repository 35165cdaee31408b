"""How the numbers of the train split are distributed, for models that scale them themselves."""

from __future__ import annotations

import numpy as np

from trainer_module.data.examples import Content, Reader

MOST = 65_536
"""Examples that are enough to know the quartiles by."""


def measure_quartiles(reader: Reader, content: Content) -> dict[str, np.ndarray]:
    """Of each numeric feature [5, n]: the least value, the quartiles, and the largest.

    Args:
      reader: of the train split.
      content: what it found; of a split that memory does not hold, the first examples tell.
    """
    names = [feature.name for feature in reader.problem.of_kind("numeric")]
    if not names:
        return {}
    if content.tensors is not None:
        batches = [content.tensors]
    else:
        batches = list(reader.stream(reader.records()).take(MOST // reader.parse_batch))
    return {name: _quartiles([batch[name].numpy() for batch in batches]) for name in names}


def _quartiles(parts: list[np.ndarray]) -> np.ndarray:
    values = np.concatenate(parts)
    values = values[:: -(-len(values) // MOST)].reshape(-1, *values.shape[1:])
    return np.quantile(values.reshape(len(values), -1), np.linspace(0, 1, 5), axis=0)
