"""What there is to do: the chunks of the files, and the splits and shards that their rows go to."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tfx import types
from tfx.components.example_gen import utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.paths import is_hidden, no_file_error
from components.example_gen.sources.base import Files, Source

# Input bytes per shard of one large file, so that readers of the examples can work in parallel.
_SHARD_BYTES = 128 << 20
# The same of a table that names pictures: about as many rows as a shard of pictures in folders has.
_NAMING_BYTES = 32 << 10


@dataclass(frozen=True)
class Chunk:
    """A unit of work: files that are read together, and the shards they go to."""

    files: Files
    input_split: int
    first_shard: int
    shards: int
    all_shards: int
    """Of all chunks that go to the same splits."""


@dataclass(frozen=True)
class Plan:
    """What a worker needs to know."""

    settings: ExampleGenSettings
    split_names: list[str]
    split_folders: list[str]
    hash_buckets: list[int]
    """By split; empty where each input split is an output split."""
    partition_feature: str | None
    uri: str
    """The folder of the examples."""

    @property
    def temporary_folder(self) -> str:
        """For what is not complete yet."""
        return posixpath.join(self.uri, ".incomplete")

    @property
    def is_ranked(self) -> bool:
        """Whether a row's split depends on the other rows."""
        return self.settings.stratify or bool(self.settings.order_by)

    @property
    def could_stratify(self) -> bool:
        """Whether the config might ask for it."""
        by_record = self.partition_feature is None and not self.is_ranked
        return bool(self.hash_buckets) and by_record


def make_plan(
    examples: types.Artifact,
    input_config: example_gen_pb2.Input,
    output_config: example_gen_pb2.Output,
    settings: ExampleGenSettings,
) -> Plan:
    """Names the artifact's splits and says how rows come to them."""
    names = utils.generate_output_split_names(input_config, output_config)
    examples.split_names = artifact_utils.encode_split_names(names)
    split_config = output_config.split_config
    by_feature = split_config.HasField("partition_feature_name")
    return Plan(
        settings=settings,
        split_names=names,
        split_folders=[artifact_utils.get_split_uri([examples], name) for name in names],
        hash_buckets=[split.hash_buckets for split in split_config.splits],
        partition_feature=split_config.partition_feature_name if by_feature else None,
        uri=examples.uri,
    )


def plan_chunks(
    source: Source,
    input_base: str,
    input_config: example_gen_pb2.Input,
    settings: ExampleGenSettings,
) -> tuple[list[Chunk], list[str]]:
    """The chunks of all input splits, and notes on files that are in none.

    Shards are numbered per input split.
    """
    chunks, notes = [], []
    shard_bytes = _NAMING_BYTES if settings.pictures else _SHARD_BYTES
    for index, split in enumerate(input_config.splits):
        pattern = posixpath.join(input_base, split.pattern)
        files = [file for file in sorted(fileio.glob(pattern)) if not is_hidden(file)]
        groups = source.plan(files)
        if not groups:
            raise no_file_error(pattern)
        notes += source.look_over(pattern, files)
        sizes = [_count_shards(files, shard_bytes) for files in groups]
        firsts = np.cumsum(sizes) - sizes
        chunks += [
            Chunk(files, index, int(first), size, sum(sizes))
            for files, first, size in zip(groups, firsts, sizes, strict=True)
        ]
    return chunks, notes


def _count_shards(files: Sequence[str], shard_bytes: int) -> int:
    # Groups of many files are small by design, and asking for their sizes takes long.
    return 1 if len(files) > 1 else 1 + fileio.stat(files[0]).length // shard_bytes
