"""A check that the columns in a config exist; free of TensorFlow and TFX."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from trainer_module.errors import DataError


def check_named_columns(
    named: Mapping[str, str], columns: Iterable[str], owner: str = "data"
) -> None:
    """Raises DataError for the first column that the config names and the data lacks.

    Args:
      named: the columns, by the config's key for each.
      columns: the existing columns.
      owner: the object that has the columns, for messages.
    """
    known = list(columns)
    for key, column in named.items():
        if column not in known:
            near = difflib.get_close_matches(column, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(known)}"
            raise DataError(f"{key}: the {owner} has no column `{column}`; {hint}")
