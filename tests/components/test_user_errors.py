"""A user's error is found whatever Beam, TFX or a worker wrapped it in."""

from __future__ import annotations

import traceback

import apache_beam as beam
import pytest

from components.user_errors import find_user_error, is_drift
from trainer_module.errors import DataError, DriftError, TrainingError

MESSAGE = "Row 3 of data.csv has 4 columns: quote the value 'a: b [c]'."


def refuse(_: object) -> None:
    """Fails as a DoFn."""
    raise DataError(MESSAGE)


def test_error_is_found_behind_beams():
    with (
        pytest.raises(Exception) as caught,  # noqa: PT011 - whatever Beam makes of it
        beam.Pipeline(runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner") as p,
    ):
        p | beam.Create([1]) | "Read [a]" >> beam.Map(refuse)
    error = find_user_error(caught.value)
    assert type(error) is DataError
    assert str(error) == MESSAGE


@pytest.mark.parametrize("link", ["cause", "context"])
def test_error_is_found_along_causes_and_contexts(link):
    try:
        try:
            raise TrainingError(MESSAGE)
        except TrainingError as error:
            if link == "cause":
                raise RuntimeError("the trainer failed") from error
            raise ValueError("while cleaning up")  # noqa: B904 - leaves __context__ alone
    except Exception as outer:
        found = find_user_error(RuntimeError("outermost"))
        assert found is None
        found = find_user_error(outer)
    assert type(found) is TrainingError
    assert str(found) == MESSAGE


def test_error_is_found_in_the_text_of_a_traceback():
    try:
        refuse(None)
    except DataError:
        text = traceback.format_exc()
    first = "trainer_module.errors.ConfigError: an earlier one\n"
    later = "RuntimeError: trainer_module.errors.DataError: {} [while running 'Read/Map [1]']\n"
    error = find_user_error(RuntimeError(first + text + later.format(MESSAGE)))
    assert type(error) is DataError
    assert str(error) == MESSAGE
    assert str(find_user_error(RuntimeError(first + text))) == MESSAGE


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no error of ours"),
        RuntimeError("trainer_module.errors.Unknown: not a class there"),
        RuntimeError("trainer_module.errors.annotations: nor this"),
    ],
)
def test_other_errors_are_not_user_errors(error):
    assert find_user_error(error) is None


def test_a_circle_of_causes_ends():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert find_user_error(one) is None


def test_drift_is_recognised():
    assert is_drift(DriftError(MESSAGE))
    assert is_drift(RuntimeError(f"trainer_module.errors.DriftError: {MESSAGE} [while running 'x'"))
    assert not is_drift(DataError(MESSAGE))
    assert not is_drift(KeyboardInterrupt())
