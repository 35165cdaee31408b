"""The choice of operations that benefit from low precision, for any file format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

KERNELS = frozenset(
    {
        *("FULLY_CONNECTED", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"),
    }
)
"""The operations with nearly all of a network's work, as named by LiteRT and ONNX."""

LOOK_UPS = frozenset({"GATHER", "EMBEDDING_LOOKUP", "Gather"})
"""The operations that fetch rows of a tensor, or of weights, which are then a table of vectors."""


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
    """Returns the names of operations that lose accuracy by low precision and cost next to nothing.

    They are the operations before the first kernel, where numbers of all sizes meet, except for
    tables; and those after the last one, which compute probabilities. A product of features with
    features, such as the sum of a text's vectors weighted by its terms, does not count as a kernel:
    LiteRT gives a slice the range of the tensor that it is cut from, so that weights beside numbers
    of terms would all become 0.

    Args:
      operations: the operations in topological order.
      outputs: the outputs of the graph.
      with_last_kernel: whether the last kernel is included, as otherwise outputs beyond those of
        the sample would be clipped; probabilities are bounded anyway.
    """
    made_by = {output: operation for operation in operations for output in operation.outputs}
    tables = {
        operation.name
        for operation in operations
        if operation.kind in LOOK_UPS and not made_by.keys() & set(operation.inputs[:1])
    }
    behind = _behind_kernels(made_by, outputs, with_last_kernel)
    chosen = {*_before_kernels(operations), *behind} - tables
    return [operation.name for operation in operations if operation.name in chosen]


def _before_kernels(operations: Sequence[Operation]) -> list[str]:
    """Returns the operations that do not depend on a kernel."""
    computed: set[str] = set()
    looked_up: set[str] = set()
    made: set[str] = set()
    found = []
    for operation in operations:
        inputs = set(operation.inputs)
        sums_up = bool(looked_up & inputs) and inputs <= made
        if computed & inputs or (operation.kind in KERNELS and not sums_up):
            computed |= set(operation.outputs)
        else:
            found.append(operation.name)
        if operation.kind in LOOK_UPS or (looked_up & inputs and operation.kind not in KERNELS):
            looked_up |= set(operation.outputs)
        made |= set(operation.outputs)
    return found


def _behind_kernels(
    made_by: Mapping[str, Operation], outputs: Iterable[str], with_last_kernel: bool
) -> list[str]:
    """Returns the operations between the last kernels and the outputs."""
    found: list[str] = []
    waiting = list(outputs)
    while waiting:
        operation = made_by.get(waiting.pop())
        if operation is None or operation.name in found:
            continue
        if operation.kind not in KERNELS:
            waiting += operation.inputs
        elif not with_last_kernel:
            continue
        found.append(operation.name)
    return found
