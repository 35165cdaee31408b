"""What TFX's libraries compute over and over or value by value: once, or on whole arrays.

The results are the libraries' own. Everything here changes them in this process alone.
"""

from __future__ import annotations

import sys


def speed_up() -> None:
    """Lets the components of this process be quick; calling it again changes nothing.

    What no component has imported by now is neither imported nor changed.
    """
    if _is_there("tfx.utils.io_utils"):
        from components.speed.schemas import remember_schemas

        remember_schemas()
    if _is_there("apache_beam"):
        from components.speed.beam_lookups import remember_lookups

        remember_lookups()
    if _is_there("tfx_bsl.coders.batch_util"):
        from components.speed.batches import batch_by_bytes

        batch_by_bytes()
    if _is_there("tfx.components.util.tfxio_utils"):
        from components.speed.examples_source import read_by_batches

        read_by_batches()
    if _is_there("tensorflow_data_validation"):
        from components.speed.histograms import vectorise_histograms
        from components.speed.validation import validate_by_columns

        vectorise_histograms()
        validate_by_columns()
    if _is_there("tensorflow_transform.beam"):
        from components.speed.transform_graphs import look_up_sources, share_transform_graphs

        look_up_sources()
        share_transform_graphs()
    if _is_there("tfx.components.transform.executor"):
        from components.speed.examples_sink import write_by_batches

        write_by_batches()


def _is_there(library: str) -> bool:
    return library in sys.modules
