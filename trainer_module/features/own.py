"""The user's own feature types: loads them by import path, and checks their results."""

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
    """Returns whether the value of `type` is an import path, and not a name in FEATURES."""
    return "." in kind


class OwnFeature(BaseFeature):
    """A feature of your own type: a subclass of BaseFeature, which defines the other keys."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[
        str,
        Matching(
            r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+",
            "the type of an own class is module.Class, such as my_types.Money",
        ),
    ]
    """The import path of your class, such as `my_types.Money`."""
    may_mix: ClassVar[bool] = True


def load_feature(path: str) -> type[BaseFeature]:
    """Returns the class of a feature type.

    Args:
      path: the import path of the class.

    Raises:
      TrainingError: the import path names nothing, or not a subclass of BaseFeature.
    """
    feature_type = load_own("feature type", path)
    if not (isinstance(feature_type, type) and issubclass(feature_type, BaseFeature)):
        raise TrainingError(
            f"feature type {path!r}: the type must be a subclass of "
            "trainer_module.features.base.BaseFeature."
        )
    return feature_type


def transform_own(
    path: str,
    columns: Mapping[str, AnyTensor],
    features: Mapping[str, BaseFeature],
    taken: Collection[str] = (),
) -> dict[str, tf.Tensor]:
    """Returns the checked tensors that the user's feature type returns for all its features.

    Args:
      path: the import path of the class.
      columns: the raw columns by name.
      features: the settings of the features of the type, by name.
      taken: the names of all columns, and of the tensors of other types.

    Raises:
      TrainingError: the type raises an error, or returns tensors that no model can use.
    """
    feature_type = load_feature(path)
    settings = {
        name: _parse_settings(feature_type, name, feature) for name, feature in features.items()
    }
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


def _parse_settings(
    feature_type: type[BaseFeature], name: str, feature: BaseFeature
) -> BaseFeature:
    try:
        return feature_type.model_validate(feature.model_dump())
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in details["loc"])
        raise _error(feature.type, [name], f"key {key}: {details['msg']}") from error


def _call(path: str, names: list[str], function: Callable[[], Result]) -> Result:
    try:
        return function()
    except Exception as error:  # User code may raise any exception.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split()) or "no message"
        line = f"{frame.filename}, line {frame.lineno}"
        raise _error(path, names, f"{type(error).__name__}: {text} ({line})") from error


def _check_name(
    path: str, features: Mapping[str, BaseFeature], name: str, taken: Collection[str]
) -> None:
    """Raises TrainingError if an output has an invalid name.

    Valid names are the names of the features, and unused names that begin with a feature's name.
    """
    if name in features:
        return
    expected = "expected: an unused name that begins with the name of the feature"
    if name in taken:
        problem = f"transform returned {name!r}, the name of another column"
        raise _error(path, list(features), f"{problem}; {expected}")
    if not any(name.startswith(feature) for feature in features):
        raise _error(path, list(features), f"transform returned {name!r}; {expected}")


def _check(
    path: str, features: Mapping[str, BaseFeature], name: str, output: Any, rows: tf.Tensor
) -> tf.Tensor:
    """Returns an output of the user's type; raises TrainingError if the output is invalid.

    A valid output is a dense tensor of numbers with a row for each input row.
    """
    import tensorflow as tf

    names = [feature for feature in features if name.startswith(feature)] or list(features)
    if not isinstance(output, tf.Tensor):
        content = f"a {type(output).__name__}"
        raise _error(path, names, f"transform returned {content} as {name!r}, not a dense tensor")
    if output.dtype not in (tf.float32, tf.int64):
        kind = "strings" if output.dtype == tf.string else output.dtype.name
        raise _error(
            path,
            names,
            f"transform returned {kind} as {name!r}; expected: float32, or int64 indices in a "
            "vocabulary",
        )
    if output.shape.rank is None or output.shape.rank < 2 or None in output.shape[1:]:
        raise _error(
            path,
            names,
            f"transform returned {name!r} with the shape {output.shape}; expected: [rows, n] "
            "or more dimensions, with a known size of every dimension except the rows",
        )
    if output.dtype == tf.int64:
        return output  # tf.identity would lose the range of the indices, which the schema stores.
    error = _error(
        path, names, f"transform returned {name!r} with a different number of rows than its input"
    )
    # When the graph runs, TensorFlow raises its own error, whose message contains this text.
    text = f"{type(error).__module__}.{type(error).__name__}: {error}\n"
    assertion = tf.debugging.assert_equal(tf.shape(output, tf.int64)[0], rows, message=text)
    with tf.control_dependencies([assertion]):
        return tf.identity(output)


def _count_rows(column: AnyTensor) -> tf.Tensor:
    import tensorflow as tf

    if isinstance(column, tf.SparseTensor):
        return column.dense_shape[0]
    return tf.cast(
        column.nrows() if isinstance(column, tf.RaggedTensor) else tf.shape(column)[0], tf.int64
    )


def _error(path: str, names: list[str], problem: str) -> TrainingError:
    noun = "feature" if len(names) == 1 else "features"
    return TrainingError(f"{noun} {', '.join(map(repr, names))} of type {path!r}: {problem}.")
