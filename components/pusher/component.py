"""TFX's Pusher, which takes the accepted variants of a model as well."""

from __future__ import annotations

from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto import pusher_pb2
from tfx.types import BaseChannel, Channel, standard_artifacts, standard_component_specs
from tfx.types.component_spec import ChannelParameter

from components.optimizer.artifacts import VARIANTS_KEY, ModelVariants
from components.pusher.executor import AtomicPushExecutor


class PusherSpec(standard_component_specs.PusherSpec):
    """Stock's, with variants of the model."""

    INPUTS = standard_component_specs.PusherSpec.INPUTS | {
        VARIANTS_KEY: ChannelParameter(type=ModelVariants, optional=True)
    }


class Pusher(base_component.BaseComponent):
    """Puts a blessed model, with its accepted variants, where a model server picks it up."""

    SPEC_CLASS = PusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(AtomicPushExecutor)

    def __init__(
        self,
        model: BaseChannel,
        model_blessing: BaseChannel,
        infra_blessing: BaseChannel | None,
        variants: BaseChannel | None,
        base_directory: str,
    ) -> None:
        """Constructs the component.

        Args:
          model: a channel of Model.
          model_blessing: a channel of ModelBlessing.
          infra_blessing: a channel of InfraBlessing, where the config asks for a certificate.
          variants: a channel of ModelVariants, where the config asks for variants.
          base_directory: the serving folder.
        """
        destination = pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=base_directory)
        )
        spec = PusherSpec(
            model=model,
            model_blessing=model_blessing,
            infra_blessing=infra_blessing,
            variants=variants,
            push_destination=destination,
            custom_config="null",
            pushed_model=Channel(type=standard_artifacts.PushedModel),
        )
        super().__init__(spec=spec)
