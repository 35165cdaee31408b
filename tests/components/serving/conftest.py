"""A model that is pushed once, and a server of it, for all tests of this room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

from components.serving.model import Model, load_model
from components.serving.server.options import ServeOptions
from tests.support.served_trips import Pushed, expected, make_rows, push
from tests.support.servers import running
from tests.support.trainer_data import made_once


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    return Pushed(made_once(tmp_path_factory, "pushed_trips", push) / "trips")


@pytest.fixture(scope="session")
def model(pushed: Pushed) -> Model:
    loaded = load_model(pushed.version)
    expected(loaded, make_rows(1))  # Loaded here, as all tests share it.
    return loaded


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    """Others than were trained with, without their label."""
    return [{k: v for k, v in row.items() if k != "tipped"} for row in make_rows(500)[300:]]


@pytest.fixture(scope="session")
def instances(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by the names of requests."""
    names = {"price (EUR)": "price__EUR_"}
    return [{names.get(k, k): v for k, v in row.items() if k != "trip id"} for row in rows]


@pytest.fixture(scope="session")
def options(pushed: Pushed) -> ServeOptions:
    return ServeOptions("trips", pushed.serving, body_seconds=1, max_bytes=1 << 20)


@pytest.fixture(scope="session")
def server(options: ServeOptions) -> Iterator[str]:
    """The address of a server of the pushed model."""
    with running(options) as address:
        yield address
