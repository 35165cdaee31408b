"""Names of tensors that are no column's own, such as the flags of what is missing."""

from __future__ import annotations

from collections.abc import Collection

BESIDE = "\x1f"
"""Stands in such a name where `free_name` puts an underscore."""
MISSING_SUFFIX = f"{BESIDE}missing"
"""Ends the name of the 0/1 feature that flags a missing value of an optional column."""
LENGTH_SUFFIX = f"{BESIDE}length"
"""Ends the name of the feature that says how full a sequence is, 0 to 1."""
PACKED = f"all{BESIDE}numbers"
"""The name of the vector of very many numbers: scores in the order of the columns' names, then the
flags."""
GROUP = f"split{BESIDE}group"
"""The name of a tensor that no model sees: rows of which it is equal are on one side wherever the
train split is divided."""
TIME = f"split{BESIDE}time"
"""Likewise: what is chosen is chosen by later rows than are learnt from."""
ASIDE = (GROUP, TIME)


def underscored(name: str) -> str:
    """A name with an underscore for `BESIDE`, as it is where no column is called so."""
    return name.replace(BESIDE, "_")


def free_name(name: str, taken: Collection[str]) -> str:
    """A name with `BESIDE`, such as `age_missing`, as no column has it: with underscores after it.

    Args:
      name: of what a feature type gives.
      taken: the names of columns and of what other types gave.
    """
    if BESIDE not in name or name in taken:
        return name
    free = underscored(name)
    while free in taken:
        free += "_"
    return free
