"""Compiles a config to TFX's intermediate representation, and splits it into single nodes.

Steps import this module, so it imports no component.

The graph is compiled twice: with the pipeline, for the nodes and their order, and in the first step
of each run, for the values of the nodes. The second compilation is necessary, because only a pod
knows the following: absolute paths and whether files match them, the revision of the kept schema,
the code that a config names, the spans, and the run's parameters. Only `create_pipeline` finds the
nodes that these values change. The second compilation takes 0.02 s. The import of TFX takes several
seconds, but the first step needs TFX anyway to read spans and metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfx.proto.orchestration import pipeline_pb2

from pipeline.config.sections.data import NO_SPAN, has_spans
from pipeline.kubeflow.compiled import NodeValues, pack, pack_argument, unpack

if TYPE_CHECKING:
    from pipeline.graph.data import Spans
    from pipeline.run_context import RunContext


def compile_graph(context: RunContext, spans: Spans | None = None) -> pipeline_pb2.Pipeline:
    """Returns the whole pipeline of a config in TFX's intermediate representation.

    Args:
      context: the config, and the layout of the pipeline on the cluster.
      spans: the spans to read and to train on; default: placeholders, if the data has spans.
    """
    # These imports load all components, which the steps of single components do not need.
    from tfx.dsl.compiler import compiler

    from pipeline.graph.create import create_pipeline
    from pipeline.graph.data import Spans

    if has_spans(context.config.data):
        actual = spans or Spans(newest=0, window=(0,))
        # A number replaces None, so that the first run, which compares no spans, has the same nodes
        # as later runs.
        older = NO_SPAN if actual.compared_with is None else actual.compared_with
        spans = Spans(actual.newest, actual.window, older)
    pipeline = create_pipeline(context, spans)
    # The connection contains the password of the metadata store.
    pipeline.metadata_connection_config = None
    return compiler.Compiler().compile(pipeline)


def split_into_nodes(pipeline: pipeline_pb2.Pipeline) -> dict[str, str]:
    """Returns a packed pipeline of a single node for each node, by id, in topological order.

    Raises:
      ConfigError: a pipeline is too large for a container's argument.
    """
    deployment = pipeline_pb2.IntermediateDeploymentConfig()
    pipeline.deployment_config.Unpack(deployment)
    packed = {}
    for node in pipeline.nodes:
        name = node.pipeline_node.node_info.id
        single = pipeline_pb2.Pipeline(
            pipeline_info=pipeline.pipeline_info,
            runtime_spec=pipeline.runtime_spec,
            execution_mode=pipeline.execution_mode,
            nodes=[node],
        )
        single.deployment_config.Pack(_deployment_of(name, deployment))
        packed[name] = pack_argument(single.SerializeToString(deterministic=True), name)
    return packed


def values_of(pipeline: pipeline_pb2.Pipeline) -> dict[str, NodeValues]:
    """Returns the values of each node by id, from a pipeline that the first step has compiled."""
    return {
        node.node_info.id: NodeValues(
            parameters=pack(node.parameters.SerializeToString()),
            inputs=pack(node.inputs.SerializeToString()),
        )
        for node in (node.pipeline_node for node in pipeline.nodes)
    }


def read_node_id(packed: str) -> str:
    """Returns the id of the node in a step's argument."""
    pipeline = pipeline_pb2.Pipeline.FromString(unpack(packed))
    return str(pipeline.nodes[0].pipeline_node.node_info.id)


def make_concrete(packed: str, values: dict[str, NodeValues]) -> pipeline_pb2.Pipeline:
    """Returns the pipeline of one node with the values of this run.

    Args:
      packed: the pipeline of the node, from `split_into_nodes`.
      values: the values of all nodes, by id.

    Raises:
      KeyError: the run's graph has no such node.
    """
    single = pipeline_pb2.Pipeline.FromString(unpack(packed))
    node = single.nodes[0].pipeline_node
    node_values = values[node.node_info.id]
    node.parameters.ParseFromString(unpack(node_values.parameters))
    node.inputs.ParseFromString(unpack(node_values.inputs))
    return single


def _deployment_of(name: str, deployment: Any) -> Any:
    """Returns the part of a deployment config that one node needs."""
    part = pipeline_pb2.IntermediateDeploymentConfig()
    for field in ("executor_specs", "custom_driver_specs", "node_level_platform_configs"):
        specs = getattr(deployment, field)
        if name in specs:
            getattr(part, field)[name].CopyFrom(specs[name])
    return part
