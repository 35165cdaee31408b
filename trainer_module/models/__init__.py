"""The model zoo. A builder is `build_model(problem, settings)`, which returns a tf_keras model.

Finding a builder imports TensorFlow only with the builder's own module.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

from trainer_module.errors import TrainingError

ZOO = {
    "cnn": "trainer_module.models.cnn.build_model",
    "mlp": "trainer_module.models.mlp.build_model",
    "wide_deep": "trainer_module.models.wide_deep.build_model",
}
"""Names that `model.kind` knows, and the builders they stand for."""


def load_builder(kind: str) -> Callable[..., Any]:
    """The builder of a zoo name or of an import path `module.function`.

    Raises:
      TrainingError: if `kind` is neither, or the module or function cannot be found.
    """
    path = ZOO.get(kind, kind)
    module_name, _, function_name = path.rpartition(".")
    if not module_name:
        near = difflib.get_close_matches(kind, ZOO, n=1)
        hint = f"did you mean {near[0]!r}? Use" if near else "use"
        raise TrainingError(
            f"there is no model {kind!r}; {hint} {', '.join(ZOO)}, or the import path of a "
            "builder, such as my_models.build_model."
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TrainingError(f"model {kind!r}: cannot import {module_name!r}: {error}.") from error
    builder = getattr(module, function_name, None)
    if not callable(builder):
        raise TrainingError(
            f"model {kind!r}: module {module_name!r} has no function {function_name!r}."
        )
    return builder
