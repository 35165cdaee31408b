"""What TFX's libraries compute over and over or value by value: once, or on whole arrays.

The results are the libraries' own. Everything here changes them in this process alone.
"""

from __future__ import annotations

import sys
from importlib import import_module

_CHANGES = {
    "tfx.utils.io_utils": ("schemas.remember_schemas",),
    "apache_beam": ("beam_lookups.remember_lookups",),
    "tfx_bsl.coders.batch_util": ("batches.batch_by_bytes",),
    "tfx.components.util.tfxio_utils": ("examples_source.read_by_batches",),
    "tensorflow_data_validation": (
        "histograms.vectorise_histograms",
        "merging.merge_many",
        "validation.validate_by_columns",
    ),
    "tensorflow_transform.beam": (
        "transform_graphs.look_up_sources",
        "transform_graphs.share_transform_graphs",
    ),
    "tfx.components.transform.executor": ("examples_sink.write_by_batches",),
}
"""By library, what changes it: the modules here and their functions."""


def speed_up() -> None:
    """Lets the components of this process be quick; calling it again changes nothing.

    What no component has imported by now is neither imported nor changed.
    """
    for library in imported():
        for change in _CHANGES[library]:
            module, function = change.split(".")
            getattr(import_module(f"{__name__}.{module}"), function)()


def imported() -> list[str]:
    """The libraries to be changed that this process has imported."""
    return [library for library in _CHANGES if library in sys.modules]
