"""Feature types of the user's: loaded by import path where they run, and checked."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, ValidationError

from trainer_module.errors import TrainingError
from trainer_module.features.base import BaseFeature
from trainer_module.sections import Matching, load_own

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor

Result = TypeVar("Result")


def is_own(kind: str) -> bool:
    """Returns whether a type is an import path rather than a name in the registry."""
    return "." in kind


class OwnFeature(BaseFeature):
    """A type of yours, by import path: a subclass of BaseFeature, which defines the other keys."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[
        str,
        Matching(
            r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", "an own type is module.Class, such as my_types.Money"
        ),
    ]
    may_mix: ClassVar[bool] = True


def load_feature(path: str) -> type[BaseFeature]:
    """Returns the feature type at an import path.

    Raises:
      TrainingError: there is none, or it is no feature type.
    """
    found = load_own("feature type", path)
    if not (isinstance(found, type) and issubclass(found, BaseFeature)):
        raise TrainingError(
            f"feature type {path!r}: it must be a subclass of "
            "trainer_module.features.base.BaseFeature."
        )
    return found


def transform_own(
    path: str,
    columns: Mapping[str, AnyTensor],
    features: Mapping[str, BaseFeature],
    taken: Collection[str] = (),
) -> dict[str, tf.Tensor]:
    """Returns the tensors of the user's feature type for the columns of the type.

    Args:
      path: the import path of the class.
      columns: the raw columns by name.
      features: the settings of the type's columns, by name.
      taken: the names of all columns, and of the tensors of other types.

    Raises:
      TrainingError: the type raises an error, or returns tensors that no model can use.
    """
    feature_type = load_feature(path)
    settings = {name: _read(feature_type, name, given) for name, given in features.items()}
    outputs = _call(path, list(features), lambda: feature_type.transform(columns, settings))
    if not isinstance(outputs, Mapping):
        raise _error(
            path,
            list(features),
            f"transform returned a {type(outputs).__name__}, not a dictionary of tensors by name",
        )
    for name in outputs:
        _check_name(path, features, name, taken)
    rows = _count_rows(next(iter(columns.values())))
    return {name: _check(path, features, name, output, rows) for name, output in outputs.items()}


def _read(feature_type: type[BaseFeature], name: str, given: BaseFeature) -> BaseFeature:
    try:
        return feature_type.model_validate(given.model_dump())
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in found["loc"])
        raise _error(given.type, [name], f"its key {key}: {found['msg']}") from error


def _call(path: str, names: list[str], function: Callable[[], Result]) -> Result:
    try:
        return function()
    except Exception as error:  # User code may raise any exception.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split()) or "no message"
        place = f"{frame.filename}, line {frame.lineno}"
        raise _error(path, names, f"{type(error).__name__}: {text} ({place})") from error


def _check_name(
    path: str, features: Mapping[str, BaseFeature], name: str, taken: Collection[str]
) -> None:
    """Raises TrainingError if an output takes the name of another column."""
    if name in features:
        return
    right = "right are unused names that begin with the name of the feature"
    if name in taken:
        found = f"it returned {name!r}, the name of another column"
        raise _error(path, list(features), f"{found}; {right}")
    if not any(name.startswith(feature) for feature in features):
        raise _error(path, list(features), f"it returned {name!r}; {right}")


def _check(
    path: str, features: Mapping[str, BaseFeature], name: str, output: Any, rows: tf.Tensor
) -> tf.Tensor:
    """Returns an output after checking that it is dense, a number, and has a row for each input
    row.
    """
    import tensorflow as tf

    names = [feature for feature in features if name.startswith(feature)] or list(features)
    if not isinstance(output, tf.Tensor):
        found = f"a {type(output).__name__}"
        raise _error(path, names, f"it returned {found} as {name!r}, not a dense tensor")
    if output.dtype not in (tf.float32, tf.int64):
        kind = "strings" if output.dtype == tf.string else output.dtype.name
        raise _error(
            path,
            names,
            f"it returned {kind} as {name!r}; a model takes float32, or int64 of a vocabulary",
        )
    if output.shape.rank is None or output.shape.rank < 2 or None in output.shape[1:]:
        raise _error(
            path,
            names,
            f"it returned {name!r} of shape {output.shape}; right is [rows, n] "
            "or more dimensions, all of known size except the rows",
        )
    if output.dtype == tf.int64:
        return output  # An identity would lose the range that the schema stores.
    message = _error(path, names, f"it returned {name!r} with more or fewer rows than its input")
    # At run time only TensorFlow's error arrives: its text contains this one.
    text = f"{type(message).__module__}.{type(message).__name__}: {message}\n"
    same = tf.debugging.assert_equal(tf.shape(output, tf.int64)[0], rows, message=text)
    with tf.control_dependencies([same]):
        return tf.identity(output)


def _count_rows(column: AnyTensor) -> tf.Tensor:
    import tensorflow as tf

    if isinstance(column, tf.SparseTensor):
        return column.dense_shape[0]
    return tf.cast(
        column.nrows() if isinstance(column, tf.RaggedTensor) else tf.shape(column)[0], tf.int64
    )


def _error(path: str, names: list[str], problem: str) -> TrainingError:
    which = "feature" if len(names) == 1 else "features"
    return TrainingError(f"{which} {', '.join(map(repr, names))} of type {path!r}: {problem}.")
