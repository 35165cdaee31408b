"""Which operations of a network are worth low precision, whatever the format of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

KERNELS = frozenset(
    {
        *("FULLY_CONNECTED", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"),
    }
)
"""Operations that do nearly all the work of a network, as LiteRT and ONNX call them."""

LOOK_UPS = frozenset({"GATHER", "EMBEDDING_LOOKUP", "Gather"})
"""Operations that fetch rows of a tensor, or of weights: those are a table of vectors."""


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
    """Returns the names of operations that lose by low precision, and cost next to nothing anyway.

    Those before the first kernel, where numbers of all sizes meet, but for the tables; and those
    behind the last one, which make probabilities. A product of features by features, as the sum of
    a text's vectors by the weights of its terms, is no kernel here: LiteRT gives a slice the range
    of all it is cut from, and weights beside numbers of terms would all become 0.

    Args:
      operations: each behind those that make its inputs.
      outputs: of the whole.
      with_last_kernel: whether the last kernel is among them. A number beyond those of the sample
          would else be cut off, where a probability has bounds anyway.
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
    """Operations that no kernel leads to."""
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
    """Operations between the last kernels and the outputs."""
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
