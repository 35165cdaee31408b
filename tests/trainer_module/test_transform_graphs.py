"""Transform's steps share the graph that they apply."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow_transform.beam import impl

from components.compat.tft import share_transform_graphs
from tests.support.trainer_data import Transformed, to_example


def test_steps_of_the_same_graph_share_it(trips: Transformed) -> None:
    share_transform_graphs()
    share_transform_graphs()
    graph = str(trips.root / "graph" / "transform_fn")
    raw_spec = trips.tft_output.raw_feature_spec()
    first = impl._RunMetaGraphDoFn._GraphStateV2(graph, set(raw_spec), [])
    assert impl._RunMetaGraphDoFn._GraphStateV2(graph, set(raw_spec), []) is first
    fewer = impl._RunMetaGraphDoFn._GraphStateV2(graph, set(raw_spec), ["company"])
    assert fewer.outputs_tensor_keys == first.outputs_tensor_keys - {"company"}

    rows = trips.evaluation[:5]
    examples = tf.io.parse_example([to_example(row) for row in rows], raw_spec)
    found = first.callable_get_outputs(examples)
    for name, expected in trips.transform(rows).items():
        np.testing.assert_array_equal(found[name], expected)
