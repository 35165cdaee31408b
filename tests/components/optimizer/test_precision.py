"""Which operations keep float32."""

from __future__ import annotations

from components.optimizer.converting.precision import Operation, float_operations

NETWORK = [
    Operation("scale", "MUL", ("amount", "deviation"), ("scaled",)),
    Operation("vectors", "GATHER", ("table", "area"), ("embedded",)),
    Operation("pick", "GATHER", ("scaled", "place"), ("picked",)),
    Operation("join", "CONCATENATION", ("picked", "embedded"), ("joined",)),
    Operation("hidden", "FULLY_CONNECTED", ("joined", "kernel"), ("activations",)),
    Operation("pool", "MEAN", ("activations",), ("pooled",)),
    Operation("last", "FULLY_CONNECTED", ("pooled", "kernel_1"), ("logits",)),
    Operation("softmax", "SOFTMAX", ("logits",), ("scores",)),
    Operation("clip", "MAXIMUM", ("scores", "margin"), ("predictions",)),
]
OUTPUTS = ["scores", "predictions"]


def test_operations_outside_the_kernels_keep_float() -> None:
    chosen = float_operations(NETWORK, OUTPUTS, with_last_kernel=False)
    assert chosen == ["scale", "pick", "join", "softmax", "clip"]


def test_last_kernel_of_a_regression_keeps_float() -> None:
    chosen = float_operations(NETWORK, OUTPUTS, with_last_kernel=True)
    assert chosen == ["scale", "pick", "join", "last", "softmax", "clip"]


def test_weighted_sum_of_vectors_keeps_float() -> None:
    network = [
        Operation("terms", "STRIDED_SLICE", ("text", "first"), ("places",)),
        Operation("weights", "STRIDED_SLICE", ("text", "second"), ("weights",)),
        Operation("vectors", "GATHER", ("table", "places"), ("embedded",)),
        Operation("sum", "BATCH_MATMUL", ("weights", "embedded"), ("summed",)),
        Operation("hidden", "FULLY_CONNECTED", ("summed", "kernel"), ("activations",)),
        Operation("compare", "BATCH_MATMUL", ("activations", "activations"), ("likeness",)),
        Operation("last", "FULLY_CONNECTED", ("likeness", "kernel_1"), ("scores",)),
    ]
    chosen = float_operations(network, ["scores"], with_last_kernel=False)
    assert chosen == ["terms", "weights", "sum"]
