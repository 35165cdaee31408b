"""Pusher's executor with an atomic push: a version is in the serving folder whole, or not at all.

The stock executor copies file by file into the version's folder, where a model server, or a run
that starts after this one was killed, can meet it half written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfx.components.pusher import executor
from tfx.proto import pusher_pb2
from tfx.types import Artifact, artifact_utils, standard_component_specs
from tfx.utils import io_utils, proto_utils

from components.example_gen.paths import is_remote
from components.versions import free_version, push_version


class AtomicPushExecutor(executor.Executor):
    """Copies beside the versions, flushes to disk, and renames into place."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes the model if it is blessed; inputs and outputs as of the stock executor."""
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(
            exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination
        )
        base = destination.filesystem.base_directory
        if is_remote(base):
            # Object stores have no rename; the stock order, saved_model.pb last, serves there.
            super().Do(input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        model = Path(self.GetModelPath(input_dict))
        version = free_version(Path(base))
        push_version(model, version)
        io_utils.copy_dir(str(model), pushed.uri)
        self._MarkPushed(pushed, pushed_destination=str(version), pushed_version=version.name)
