"""The graph of the family `generation`: reads and checks pictures, then trains two networks."""

from __future__ import annotations

from tfx.dsl.components.base import base_node

from pipeline.graph.data import create_data
from pipeline.graph.families import FamilyNodes, GraphInputs, create_trainer, wire_evaluation
from pipeline.graph.resolving import resolve_window


def wire(graph_inputs: GraphInputs) -> FamilyNodes:
    """Returns the components of a config in topological order, without the Pusher."""
    # Reads pictures of any format, and chooses their size.
    data = create_data(graph_inputs.context, graph_inputs.spans)
    nodes, window = list(data.components), data.examples
    if graph_inputs.spans is not None:
        resolver = resolve_window(graph_inputs.spans.window, data.example_gen)
        nodes, window = [*nodes, resolver], resolver.outputs["examples"]

    # Trains both networks under the strategy, and exports the generator.
    trainer = create_trainer(graph_inputs, window, data.schema)
    trainer.add_upstream_node(data.validator)

    # Compares samples of the new generator, and of the generator in service, with real pictures.
    return wire_evaluation(graph_inputs, [*nodes, trainer], window)


def wire_data(graph_inputs: GraphInputs) -> list[base_node.BaseNode]:
    """Returns the components up to ExampleValidator."""
    return create_data(graph_inputs.context, graph_inputs.spans).components
