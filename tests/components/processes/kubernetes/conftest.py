"""What the tests of workers as pods find: a small Kubernetes, and the volume of its pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_gangs import serving
from kube_server import KubeServer


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with serving(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The volume, as this process sees it."""
    return tmp_path / "data"
