"""Environment and data of these tests."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tests.support.training_data import (  # noqa: F401 - fixtures
    digits,
    houses,
    houses_model,
    later_orders,
    later_orders_model,
    opinions,
    opinions_model,
    orders,
    orders_model,
    reviews,
    shades,
    shades_model,
    trips,
    trips_model,
)
