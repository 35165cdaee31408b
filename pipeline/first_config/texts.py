"""Texts in a folder per class, one text per file: a command makes a table of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from components.example_gen.conversions import python_command
from pipeline.first_config.found_data import EVAL_WORDS, TRAIN_WORDS
from trainer_module.errors import DataError

_MIN_TEXTS = 5
"""The minimum average number of texts of a class."""
_USUAL_SHARE = 0.9
"""The minimum share of the texts that are equally many folders deep."""
_ROWS = (
    '[("text", "label"), *((f.read_text(errors="replace"), f.parent.name)'
    " for f in sorted(pathlib.Path({folder}).glob({pattern})))]"
)
_ONE = f'import csv, pathlib; csv.writer(open("texts.csv", "w", newline="")).writerows({_ROWS})'
_SPLITS = (
    'import csv, pathlib; pathlib.Path("texts").mkdir(); [csv.writer(open(f"texts/{{s}}.csv", "w",'
    f' newline="")).writerows({_ROWS}) for s in {{splits}}]'
)
"""The Python code that writes one table, or a table for each split."""


def check_no_texts(folder: Path, files: Sequence[str]) -> None:
    """Raises DataError for texts in a folder per class, with the command that makes a table.

    Args:
      files: the files of tables and texts in the folder, relative to it.
    """
    texts = [file for file in files if file.lower().endswith(".txt")]
    if len(texts) < len(files) or not texts:
        return
    ((depth, usual),) = Counter(file.count("/") for file in texts).most_common(1)
    classes = {file.split("/")[-2] for file in texts if file.count("/") == depth > 0}
    if usual < max(_USUAL_SHARE * len(texts), _MIN_TEXTS * len(classes)) or len(classes) < 2:
        return
    tops = sorted({file.split("/")[0] for file in texts if file.count("/") == depth})
    are_splits = depth > 1 and {top.lower() for top in tops} <= {*TRAIN_WORDS, *EVAL_WORDS}
    code = (_SPLITS if are_splits else _ONE).format(
        folder=json.dumps(str(folder), ensure_ascii=False) + (", s" if are_splits else ""),
        pattern=json.dumps("*/" * (depth - are_splits) + "*.txt"),
        splits=json.dumps(tops),
    )
    table = "texts" if are_splits else "texts.csv"
    raise DataError(
        f"{folder} contains a text in each file, in a folder per class: write a table by"
        f" `{python_command(code)}`, and name {table}."
    )
