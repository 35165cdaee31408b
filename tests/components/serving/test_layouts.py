"""Tensors as bytes behind JSON that was seen before."""

from __future__ import annotations

import json

import numpy as np
import pytest

from components.serving.model import FeatureColumn
from components.serving.requests import Arrays
from components.serving.server.protocols.layouts import Layouts
from components.serving.server.protocols.open_inference import check_tensors
from components.serving.server.protocols.tensors import to_tensors
from components.serving.server.replies import RequestError
from trainer_module.export.interface import ModelInterface, RawColumn

FARE = FeatureColumn("fare", "fare", "float32", False, 1, shape=(1,))
PLACE = FeatureColumn("place", "place", "int64", True, 1, shape=(1,))
PHOTO = FeatureColumn("photo", "photo", "float32", False, 6, shape=(3, 2))
INTERFACE = ModelInterface((FARE, PLACE, PHOTO), "y", "string", "binary")


def tensors(seed: int, rows: int = 4) -> Arrays:
    generator = np.random.default_rng(seed)
    return {
        "photo": generator.random((rows, 3, 2), np.float32),
        "place": generator.integers(0, 9, (rows, 1)),
        "fare": generator.random((rows, 1), np.float32),
    }


def request(given: Arrays, **parameters: int) -> tuple[bytes, int]:
    inputs, tail = to_tensors(given)
    head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    return head + tail, len(head)


def flat(given: Arrays) -> Arrays:
    return {"fare": given["fare"][:, 0], "place": given["place"][:, 0],
            "photo": given["photo"].reshape(-1, 6)}  # fmt: skip


def assert_read(layouts: Layouts, given: Arrays, **parameters: int) -> None:
    asked, signature, found = layouts.read(*request(given, **parameters), INTERFACE)
    assert (signature, asked["parameters"]) == ("serving_raw", parameters)
    for name, values in flat(given).items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].flags.aligned
        assert found[name].dtype == values.dtype


def test_numbers_are_read_alike_whether_their_json_was_seen_or_not() -> None:
    layouts = Layouts()
    for seed in range(4):
        assert_read(layouts, tensors(seed))
        assert_read(layouts, tensors(seed, rows=7))
        for other in range(80):  # More than are kept.
            assert_read(layouts, tensors(seed), other=other)


def test_numbers_that_are_narrower_than_the_model_takes_are_widened() -> None:
    layouts = Layouts()
    for seed in (1, 2):
        given = tensors(seed) | {"place": tensors(seed)["place"].astype(np.int32)}
        _, _, found = layouts.read(*request(given), INTERFACE)
        assert found["place"].dtype == np.int64
        np.testing.assert_array_equal(found["place"], given["place"][:, 0])


def test_what_is_wrong_is_found_behind_json_that_was_seen() -> None:
    layouts = Layouts()
    body, end = request(tensors(1))
    layouts.read(body, end, INTERFACE)
    with pytest.raises(RequestError, match="'fare' has fewer bytes than its binary_data_size"):
        layouts.read(body[:-1], end, INTERFACE)
    with pytest.raises(RequestError, match="2 bytes follow that belong to no input"):
        layouts.read(body + b"12", end, INTERFACE)
    infinite = tensors(2)
    infinite["photo"][1, 1, 1] = np.inf
    _, _, found = layouts.read(*request(infinite), INTERFACE)
    with pytest.raises(RequestError, match="input 'photo' is infinite"):
        check_tensors(found, INTERFACE)
    # The next version may ask for others.
    smaller = ModelInterface((FARE, PLACE), "y", "string", "binary")
    with pytest.raises(RequestError, match="'photo', which the model does not take"):
        layouts.read(body, end, smaller)


def test_numbers_that_have_to_be_whole_are() -> None:
    hour = RawColumn("hour", "hour", "float64", True, 1)
    interface = ModelInterface((hour,), "y", "string", "binary")
    layouts = Layouts()
    for value, is_whole in ((2.0, True), (np.nan, True), (2.5, False), (1e300, False)):
        _, _, found = layouts.read(*request({"hour": np.array([value])}), interface)
        if is_whole:
            check_tensors(found, interface)
        else:
            with pytest.raises(RequestError, match="'hour' holds other than whole numbers"):
                check_tensors(found, interface)
