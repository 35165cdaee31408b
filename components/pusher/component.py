"""A Pusher that pushes a model and its accepted variants atomically."""

from __future__ import annotations

import logging
import posixpath
from pathlib import Path
from typing import Any

from tfx.components.pusher import executor
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import (
    Artifact,
    BaseChannel,
    Channel,
    artifact_utils,
    standard_artifacts,
    standard_component_specs,
)
from tfx.types.component_spec import ChannelParameter
from tfx.utils import io_utils, proto_utils

from components.copying import copy_folder
from components.example_gen.paths import is_remote
from components.optimizer.artifacts import VARIANTS_KEY, ModelVariants, read_report
from components.optimizer.report import OptimizerReport
from components.processes.stopping import commit_or_abort
from components.pusher.certificate import CERTIFICATE_FOLDER
from components.pusher.variants import MANIFEST_FILE, VARIANTS_FOLDER, add_variants, has_variants
from components.pusher.versions import (
    CARD_FOLDER,
    CARD_JSON,
    CARD_MARKDOWN,
    WITHDRAWN_PROPERTY,
    Provenance,
    find_damage,
    find_variant_damage,
    list_versions,
    now,
    push_new_version,
    read_provenance,
)
from components.split_files import Artifacts
from trainer_module.errors import shorten
from trainer_module.runtime import report_notice, report_step
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

_PUSHED, _DESTINATION, _VERSION = "pushed", "pushed_destination", "pushed_version"
"""TFX's custom properties of a PushedModel."""


class AtomicPushExecutor(executor.Executor):
    """An executor that copies a model into a hidden folder, flushes it to disk, and renames it.

    A version therefore appears in the serving folder atomically. TFX's own executor copies file by
    file into the folder of the version, where a model server, or the run after a killed run, can
    find an incomplete version. If a run is killed between the push and its record in the metadata,
    TFX's executor also pushes the model twice. Here each version contains a record of its model.
    """

    def __init__(self, context: base_executor.BaseExecutor.Context | None = None) -> None:
        super().__init__(context)
        self._run = context.pipeline_run_id if context else None

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Pushes the model if it is blessed, with the inputs and outputs of TFX's own executor.

        A withdrawn model is never pushed. It may be blessed again, because the mark of the
        withdrawal changes the Model artifact, so that the Evaluator runs again.
        """
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(
            exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination
        )
        base = destination.filesystem.base_directory
        model = artifact_utils.get_single_instance(input_dict[standard_component_specs.MODEL_KEY])
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if model.get_int_custom_property(WITHDRAWN_PROPERTY):
            logger.warning("The model at %s was withdrawn and is not pushed", model.uri)
            _mark(pushed)
            return
        variants, report = _read_variants(input_dict)
        if report is not None and report.unmet:
            logger.warning("Nothing is pushed: %s", "; ".join(report.unmet))
            _mark(pushed)
            return
        report_step(f"copies the model to {base}")
        if is_remote(base):
            # Object stores have no atomic rename, but TFX's own executor copies saved_model.pb
            # last. A stop during the copy would leave an incomplete version.
            commit_or_abort()
            super().Do(input_dict, output_dict, exec_properties)
            if pushed.get_int_custom_property(_PUSHED):
                if self._run:
                    _push_card(posixpath.join(model.uri, CARD_FOLDER, self._run), pushed)
                if variants is not None:
                    self._push_variants(variants, pushed)
            return
        if not self.CheckBlessing(input_dict):
            _mark(pushed)
            return
        certificates = input_dict.get(standard_component_specs.INFRA_BLESSING_KEY) or []
        exported = Path(self.GetModelPath(input_dict))
        folder = None if variants is None else Path(variants)
        certificate = Path(certificates[0].uri) / CERTIFICATE_FOLDER if certificates else None
        version = self._push(exported, model, Path(base), folder, certificate)
        # The version is copied, and not the model, because the version contains the provenance.
        io_utils.copy_dir(str(version), pushed.uri)
        _mark(pushed, version)

    def _push(
        self,
        exported: Path,
        model: Artifact,
        base: Path,
        variants: Path | None,
        certificate: Path | None,
    ) -> Path:
        """Pushes the model, unless the newest version already contains the model and the variants.

        Returns the folder of the version.
        """
        provenance = Provenance(
            model=model.uri,
            model_id=model.id,
            model_created=model.mlmd_artifact.create_time_since_epoch,
            run=self._run,
            pushed_at=now(),
        )
        for newest in list_versions(base)[-1:]:
            stored = read_provenance(newest)
            is_same = stored is not None and stored.has_same_model(provenance)
            damage = is_same and (find_damage(newest) or find_variant_damage(newest))
            if is_same and has_variants(newest, variants) and not damage:
                logger.info("Version %s already contains this model", newest)
                return newest
        card = Path(model.uri, CARD_FOLDER, self._run) if self._run else None
        return push_new_version(exported, base, provenance, variants, certificate, card)

    def _push_variants(self, variants: str, pushed: Artifact) -> None:
        """Copies the variants next to a model in an object store; the manifest is copied last."""
        with ScratchFolder() as scratch:
            artifact, version = Path(scratch, "artifact"), Path(scratch, "version")
            copy_folder(variants, str(artifact))
            version.mkdir()
            add_variants(artifact, version)
            manifest = version / VARIANTS_FOLDER / MANIFEST_FILE
            for uri in (pushed.get_string_custom_property(_DESTINATION), pushed.uri):
                target = posixpath.join(uri, VARIANTS_FOLDER)
                for folder in sorted(version.glob(f"{VARIANTS_FOLDER}/*/")):
                    copy_folder(str(folder), posixpath.join(target, folder.name))
                if manifest.exists():
                    fileio.copy(str(manifest), posixpath.join(target, MANIFEST_FILE))


def _push_card(folder: str, pushed: Artifact) -> None:
    """Copies a model card next to a model in an object store, and into the Pusher's artifact.

    An error is reported and does not fail the push, as the model is in service already.
    """
    try:
        for uri in (pushed.get_string_custom_property(_DESTINATION), pushed.uri):
            for name in (CARD_JSON, CARD_MARKDOWN):
                card = posixpath.join(folder, name)
                if fileio.exists(card):
                    fileio.copy(card, posixpath.join(uri, name), overwrite=True)
    except Exception as error:  # Object stores raise errors of their own.
        logger.warning("The model card could not be copied", exc_info=True)
        report_notice(
            f"the version has no model card: {type(error).__name__}: {shorten(error)}; the card is "
            f"in {folder}"
        )


def _mark(pushed: Artifact, version: Path | None = None) -> None:
    """Sets the custom properties of a PushedModel that TFX's own Pusher sets."""
    pushed.set_int_custom_property(_PUSHED, int(version is not None))
    if version is not None:
        pushed.set_string_custom_property(_DESTINATION, str(version))
        pushed.set_string_custom_property(_VERSION, version.name)


def _read_variants(
    input_dict: Artifacts,
) -> tuple[str | None, OptimizerReport | None]:
    """Returns the folder and the report of the variants, or None if the config has no variants."""
    if not input_dict.get(VARIANTS_KEY):
        return None, None
    uri = artifact_utils.get_single_uri(input_dict[VARIANTS_KEY])
    return uri, read_report(uri)


class PusherSpec(standard_component_specs.PusherSpec):
    """The spec of TFX's Pusher, with the variants of the model as an additional optional input."""

    INPUTS = standard_component_specs.PusherSpec.INPUTS | {
        VARIANTS_KEY: ChannelParameter(type=ModelVariants, optional=True)
    }


class Pusher(base_component.BaseComponent):
    """A component that pushes a blessed model and its accepted variants to the serving folder."""

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
        """Constructs the component from channels.

        Args:
          infra_blessing: a channel of InfraBlessing, or None if the config disables certificates.
          variants: a channel of ModelVariants, or None if the config has no variants.
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
