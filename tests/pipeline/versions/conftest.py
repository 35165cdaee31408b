"""What these tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipeline_service import Service


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)
