"""A builder's model of logits is refused before the training, compiled or not."""

from __future__ import annotations

import pytest

from trainer_module.errors import TrainingError
from trainer_module.settings import TrainerSettings


@pytest.mark.parametrize("is_compiled", [False, True])
def test_logits_are_refused_where_probabilities_are_evaluated(is_compiled: bool) -> None:
    import tf_keras

    from trainer_module.features.transformed import TransformedFeature
    from trainer_module.problem import Problem
    from trainer_module.training.building import check_model

    problem = Problem(
        "multiclass", "digit", ("0", "1", "2"), (TransformedFeature("x", "numeric", (1,)),)
    )
    settings = TrainerSettings.model_validate(
        {"label": "digit", "task": "multiclass", "model": {"kind": "my_model.build"}}
    )
    inputs = problem.make_inputs()
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(3)(inputs["x"]))
    if is_compiled:
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
    with pytest.raises(TrainingError, match=r"my_model\.build"):
        check_model(model, problem, settings)
    probabilities = tf_keras.Model(inputs, tf_keras.layers.Softmax()(model.output))
    assert check_model(probabilities, problem, settings).shape[-1] == 3
