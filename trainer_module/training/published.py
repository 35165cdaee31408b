"""A network that others have trained, with their own head: nothing is left to train."""

from __future__ import annotations

from trainer_module.training.building import make_network
from trainer_module.training.plan import Trained, TrainingInputs

NOTE = "transfer: the network and its head are as they were published; nothing is trained"


def take_as_published(inputs: TrainingInputs) -> Trained:
    """Builds the network with its published weights, and takes it for trained.

    Args:
      inputs: whose settings have `model.transfer.head: published`.

    Raises:
      TrainingError: the weights cannot be read or are of another network, or the data has another
        feature than one picture.
    """
    with inputs.strategy.scope():
        model = make_network(inputs.data.problem, inputs.settings)
    return Trained(
        model=model,
        train=inputs.data.train,
        evaluation=inputs.data.evaluation,
        history={"loss": []},
        best_epoch=0,
        epoch_seconds=[],
        notes=[NOTE],
    )
