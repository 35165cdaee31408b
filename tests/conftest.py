"""What all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: whole pipelines run when everything else has passed."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)
