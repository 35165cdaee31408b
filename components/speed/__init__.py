"""What TFX's libraries compute over and over or value by value: once, or on whole arrays.

The results are the libraries' own. Everything here changes them in this process alone.
"""

from __future__ import annotations


def speed_up() -> None:
    """Lets the components of this process be quick; calling it again changes nothing."""
    from components.speed.batches import batch_by_bytes
    from components.speed.beam_lookups import remember_lookups
    from components.speed.examples_sink import write_by_batches
    from components.speed.examples_source import read_by_batches
    from components.speed.histograms import vectorise_histograms
    from components.speed.schemas import remember_schemas
    from components.speed.transform_graphs import look_up_sources, share_transform_graphs
    from components.speed.validation import validate_by_columns

    batch_by_bytes()
    read_by_batches()
    remember_lookups()
    vectorise_histograms()
    look_up_sources()
    remember_schemas()
    share_transform_graphs()
    validate_by_columns()
    write_by_batches()
