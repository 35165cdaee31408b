"""A check that the columns in a config exist. The module does not import TensorFlow or TFX."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from trainer_module.errors import DataError


def check_named_columns(
    columns_by_key: Mapping[str, str], columns: Iterable[str], owner: str = "data"
) -> None:
    """Raises DataError for the first column of a config that does not exist.

    Args:
      columns_by_key: the columns in the config, by the key whose value is the column.
      owner: the object that has the columns, for messages, such as `data` or `schema`.
    """
    existing = list(columns)
    for key, column in columns_by_key.items():
        if column not in existing:
            near = difflib.get_close_matches(column, existing, n=1)
            hint = f"the columns are {', '.join(existing)}" if existing else "it has no columns"
            if near:
                hint = f"did you mean `{near[0]}`?"
            raise DataError(f"{key}: the {owner} has no column `{column}`; {hint}")
