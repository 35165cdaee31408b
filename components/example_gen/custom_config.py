"""The settings as TFX's CustomConfig, which makes them an execution property and so cached on."""

from __future__ import annotations

from google.protobuf import json_format, struct_pb2
from tfx.proto import example_gen_pb2
from tfx.utils import proto_utils

from components.example_gen.formats import ExampleGenSettings


def pack(settings: ExampleGenSettings) -> example_gen_pb2.CustomConfig:
    """Packs the settings as a protobuf Struct."""
    struct = struct_pb2.Struct()
    struct.update(settings.model_dump(mode="json"))
    config = example_gen_pb2.CustomConfig()
    config.custom_config.Pack(struct, deterministic=True)
    return config


def unpack(custom_config: str) -> ExampleGenSettings:
    """Reads the settings from the JSON of a CustomConfig, as executors receive it."""
    config = example_gen_pb2.CustomConfig()
    proto_utils.json_to_proto(custom_config, config)
    struct = struct_pb2.Struct()
    config.custom_config.Unpack(struct)
    return ExampleGenSettings.model_validate(json_format.MessageToDict(struct))
