"""Looks at a table as ExampleGen does, with the same surveys and checks, but without TFX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.example_gen.checks.rows import Report
from components.example_gen.checks.whole import check_report
from components.example_gen.first_look import ALL
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_gen.sources.base import merge_surveys


def look_at_table(settings: ExampleGenSettings, files: Sequence[str]) -> frozenset[str]:
    """Surveys and reads the files of a table, and keeps nothing but the names of its columns.

    Raises:
      DataError: they cannot be used.
    """
    source, report = make_source(settings), Report()
    groups = source.plan(files)
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    for group in groups:
        for batch in source.read(group, kinds):
            splits = np.zeros(batch.rows.num_rows, np.int64)
            report.add_rows(batch.rows, splits, [ALL], batch.first, settings)
    check_report(report, [ALL], False, settings)
    return frozenset(kinds)
