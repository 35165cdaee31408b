"""A small Kubeflow Pipelines for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kfp_server import KfpServer


@pytest.fixture
def server() -> Iterator[KfpServer]:
    with KfpServer() as server:
        yield server
