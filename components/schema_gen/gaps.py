"""What stands for values that are missing where the first data had them in every row."""

from __future__ import annotations

import math

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio import tensor_representation_util

from trainer_module.features.raw_columns import MISSING_INTEGER

_Gap = schema_pb2.TensorRepresentation.DefaultValue
_GAPS = {
    schema_pb2.FLOAT: _Gap(float_value=math.nan),
    schema_pb2.INT: _Gap(int_value=MISSING_INTEGER),
    schema_pb2.BYTES: _Gap(bytes_value=b""),
}
"""Stands for a missing value in a dense tensor; `dense_numbers` and `dense_strings` know it."""


def fill_gaps(schema: schema_pb2.Schema) -> None:
    """Says what stands in a dense tensor for a missing value of a column that used to have none.

    Such a column costs no more to parse than one that has a value in every row, and the model gets
    no input of its own that flags what never happened while it learnt. Columns of several values,
    or of which the schema says that they may be missing, are sparse.
    """
    given = tensor_representation_util.GetTensorRepresentationsFromSchema(schema) or {}
    # Those of all columns: readers infer none where the schema has some.
    tensors = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(schema)
    for feature in schema.feature:
        if feature.name not in given and _is_in_every_row(feature):
            dense = schema_pb2.TensorRepresentation.DenseTensor(
                column_name=feature.name, default_value=_GAPS[feature.type]
            )
            dense.shape.dim.add(size=1)
            tensors[feature.name] = schema_pb2.TensorRepresentation(dense_tensor=dense)
    tensor_representation_util.SetTensorRepresentationsInSchema(schema, tensors)


def _is_in_every_row(feature: schema_pb2.Feature) -> bool:
    """Whether the schema expects one value of a feature in each example, without insisting."""
    counts = (feature.value_count.min, feature.value_count.max)
    return feature.presence.min_fraction == 1 and counts == (1, 1) and feature.type in _GAPS
