"""TFX's intermediate representation: cut into one node per step, and made concrete for a run.

A step imports this, which knows of a component no more than its name.
"""

from __future__ import annotations

from typing import Any

from tfx.proto.orchestration import pipeline_pb2

from pipeline.kubeflow.compiled import NodeValues
from pipeline.kubeflow.compiling.codec import pack, pack_argument, unpack


def cut(pipeline: pipeline_pb2.Pipeline) -> dict[str, str]:
    """One pipeline of a single node, packed, for each node by its id, in topological order.

    Raises:
      ConfigError: one is too large for a container's argument.
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
    """The values of each node, by id, of a pipeline that the first step has compiled."""
    return {
        node.node_info.id: NodeValues(
            parameters=pack(node.parameters.SerializeToString()),
            inputs=pack(node.inputs.SerializeToString()),
        )
        for node in (node.pipeline_node for node in pipeline.nodes)
    }


def read_node_id(packed: str) -> str:
    """The id of the node in a step's argument."""
    pipeline = pipeline_pb2.Pipeline.FromString(unpack(packed))
    return str(pipeline.nodes[0].pipeline_node.node_info.id)


def make_concrete(packed: str, values: dict[str, NodeValues]) -> pipeline_pb2.Pipeline:
    """The pipeline of one node with its values of this run.

    Args:
      packed: as `cut` returned it.
      values: of all nodes, by id.

    Raises:
      KeyError: the graph that the run began with has no such node.
    """
    single = pipeline_pb2.Pipeline.FromString(unpack(packed))
    node = single.nodes[0].pipeline_node
    known = values[node.node_info.id]
    node.parameters.ParseFromString(unpack(known.parameters))
    node.inputs.ParseFromString(unpack(known.inputs))
    return single


def _deployment_of(name: str, deployment: Any) -> Any:
    """The part of a deployment config that one node needs."""
    part = pipeline_pb2.IntermediateDeploymentConfig()
    for field in ("executor_specs", "custom_driver_specs", "node_level_platform_configs"):
        specs = getattr(deployment, field)
        if name in specs:
            getattr(part, field)[name].CopyFrom(specs[name])
    return part
