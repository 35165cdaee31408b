"""The choice of the operations that remain in float32, for any file format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

KERNELS = frozenset(
    {
        *("FULLY_CONNECTED", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"),
    }
)
"""The operations that do nearly all of a network's work, by LiteRT's and by ONNX's names."""

LOOKUPS = frozenset({"GATHER", "EMBEDDING_LOOKUP", "Gather"})
"""The operations that select rows of a tensor. If the tensor is weights, it is a table of
vectors."""


@dataclass(frozen=True)
class Operation:
    """A node of a graph."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def float_operations(
    operations: Sequence[Operation], outputs: Iterable[str], with_last_kernel: bool
) -> list[str]:
    """Returns the names of cheap operations that would lose accuracy in low precision.

    These are the operations before the first kernel, whose inputs have different ranges, except for
    look-ups in tables, and the operations after the last kernel, which compute probabilities.

    A product of two features does not count as a kernel. An example is the sum of the vectors of a
    text's terms, weighted by the terms' weights. LiteRT gives a slice the range of the whole
    tensor: if the tensor also contains the counts of terms, which are larger, all weights would
    become 0.

    Args:
      operations: the operations in topological order.
      with_last_kernel: whether to include the last kernel. Otherwise, outputs are clipped to the
        range of the sample's outputs, which is harmless only for probabilities.
    """
    producers = {output: operation for operation in operations for output in operation.outputs}
    tables = {
        operation.name
        for operation in operations
        if operation.kind in LOOKUPS and not producers.keys() & set(operation.inputs[:1])
    }
    after = _after_kernels(producers, outputs, with_last_kernel)
    chosen = {*_before_kernels(operations), *after} - tables
    return [operation.name for operation in operations if operation.name in chosen]


def _before_kernels(operations: Sequence[Operation]) -> list[str]:
    """Returns the names of the operations that do not depend on a kernel."""
    kernel_results: set[str] = set()
    looked_up: set[str] = set()
    results: set[str] = set()
    names = []
    for operation in operations:
        inputs = set(operation.inputs)
        is_weighted_sum = bool(looked_up & inputs) and inputs <= results
        if kernel_results & inputs or (operation.kind in KERNELS and not is_weighted_sum):
            kernel_results |= set(operation.outputs)
        else:
            names.append(operation.name)
        if operation.kind in LOOKUPS or (looked_up & inputs and operation.kind not in KERNELS):
            looked_up |= set(operation.outputs)
        results |= set(operation.outputs)
    return names


def _after_kernels(
    producers: Mapping[str, Operation], outputs: Iterable[str], with_last_kernel: bool
) -> list[str]:
    """Returns the names of the operations after the last kernels.

    If `with_last_kernel` is set, the last kernels are included.
    """
    names: list[str] = []
    pending = list(outputs)
    while pending:
        operation = producers.get(pending.pop())
        if operation is None or operation.name in names:
            continue
        if operation.kind not in KERNELS:
            pending += operation.inputs
        elif not with_last_kernel:
            continue
        names.append(operation.name)
    return names
