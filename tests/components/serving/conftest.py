"""A model that is pushed once, for all tests of what asks models."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

from components.serving.model import Model, load_model
from tests.support.served_trips import Pushed, make_rows, push
from tests.support.trainer_data import made_once


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    return Pushed(made_once(tmp_path_factory, "pushed_trips", push) / "trips")


@pytest.fixture(scope="session")
def model(pushed: Pushed) -> Model:
    return load_model(pushed.version)


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    """Others than were trained with, without their label."""
    return [{k: v for k, v in row.items() if k != "tipped"} for row in make_rows(500)[300:]]


@pytest.fixture(scope="session")
def asked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by the names of requests."""
    names = {"price (EUR)": "price__EUR_"}
    return [{names.get(k, k): v for k, v in row.items() if k != "trip id"} for row in rows]
