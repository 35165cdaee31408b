"""The tasks that learn a label from columns: tasks, models, losses and trees."""

from __future__ import annotations

from trainer_module.families import Family

_GRAPH = "pipeline.graph.supervised"


class SupervisedFamily(Family):
    """A label is predicted from columns: ExampleGen, Transform, TFMA and a network, or trees.

    What differs between its tasks is what they say of the label: `BaseTask`.
    """

    has_label = True
    graph = f"{_GRAPH}.wire"
    search_graph = f"{_GRAPH}.wire_search"
    data_graph = f"{_GRAPH}.wire_data"
