"""The plan of example generation: chunks of files, and the splits and shards of their rows."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tfx import types
from tfx.components.example_gen import utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.paths import is_hidden, no_file_error
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Batch, Files, Source
from components.example_gen.sources.surveys import merge_surveys

# Input bytes per shard of one large file, so that readers of the examples can work in parallel.
_SHARD_BYTES = 128 << 20
# The same for tables with paths of pictures: about as many rows as a shard of pictures has.
_NAMING_BYTES = 32 << 10
# Input bytes of small files that go to one shard: each step spends about as long on a shard as on
# some thousand rows. It is less where the data is small, so that several processes can share it.
_BUNDLE_BYTES = 8 << 20
_BUNDLES = 8
# The most shards of one large file, whose reader writes to all shards of all splits at once.
_MOST_SHARDS = 64


@dataclass(frozen=True)
class Chunk:
    """A unit of work: groups of files that are read one after another, and the shards for their
    rows.
    """

    groups: tuple[Files, ...]
    """The groups; the files of a group are read together."""
    input_split: int
    first_shard: int
    shards: int
    all_shards: int
    """The number of shards of all chunks that go to the same splits."""


@dataclass(frozen=True)
class Plan:
    """The settings and splits that each worker receives."""

    settings: ExampleGenSettings
    split_names: list[str]
    split_folders: list[str]
    hash_buckets: list[int]
    """The hash buckets by split; empty if each input split is an output split."""
    partition_feature: str | None
    uri: str
    """The folder of the examples."""

    @property
    def temporary_folder(self) -> str:
        """The folder of incomplete files."""
        return posixpath.join(self.uri, ".incomplete")

    @property
    def is_ranked(self) -> bool:
        """Whether a row's split depends on the other rows."""
        return self.settings.stratify or bool(self.settings.order_by)

    @property
    def could_stratify(self) -> bool:
        """Whether the config could set data.stratify."""
        by_record = self.partition_feature is None and not self.is_ranked
        return bool(self.hash_buckets) and by_record


def make_plan(
    examples: types.Artifact,
    input_config: example_gen_pb2.Input,
    output_config: example_gen_pb2.Output,
    settings: ExampleGenSettings,
) -> Plan:
    """Sets the artifact's splits and returns how rows are assigned to them."""
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
    """Returns the chunks of all input splits, and notes on files that are in no chunk.

    Small files share a chunk; shards are numbered per input split.
    """
    chunks, notes = [], []
    shard_bytes = _NAMING_BYTES if settings.pictures else _SHARD_BYTES
    for index, split in enumerate(input_config.splits):
        pattern = posixpath.join(input_base, split.pattern)
        files = [file for file in sorted(fileio.glob(pattern)) if not is_hidden(file)]
        groups = source.plan(files)
        if not groups:
            raise no_file_error(pattern)
        notes += source.note_ignored_files(pattern, files)
        bundles = list(_bundle(groups, shard_bytes))
        shards = [count for _, count in bundles]
        firsts = np.cumsum(shards) - shards
        chunks += [
            Chunk(bundle, index, int(first), count, sum(shards))
            for (bundle, count), first in zip(bundles, firsts, strict=True)
        ]
    return chunks, notes


def _bundle(groups: Sequence[Files], shard_bytes: int) -> Iterator[tuple[tuple[Files, ...], int]]:
    """Yields bundles of groups, in order, and the number of shards of each; large groups are
    alone.
    """
    sizes = [_size(files) for files in groups]
    most = min(_BUNDLE_BYTES, shard_bytes, sum(sizes) // _BUNDLES)
    bundle, size = list[Files](), 0
    for files, group_size in zip(groups, sizes, strict=True):
        if bundle and size + group_size > most:
            yield tuple(bundle), _count_shards(size, shard_bytes)
            bundle, size = [], 0
        bundle.append(files)
        size += group_size
    yield tuple(bundle), _count_shards(size, shard_bytes)


def _size(files: Files) -> int:
    # Groups of more than two files are pictures for one shard; reading their sizes takes long.
    return sum(fileio.stat(file).length for file in files) if len(files) <= 2 else _BUNDLE_BYTES


def _count_shards(size: int, shard_bytes: int) -> int:
    return min(1 + size // shard_bytes, _MOST_SHARDS)


ORIGIN_PROPERTY = "origin"
"""The artifact's property with the files and the settings for reading them, as JSON."""

MOST_BYTES = 256 << 20
"""The most bytes of files that are read again, as one process reads them while the user waits."""


def note_origin(
    examples: types.Artifact, settings: ExampleGenSettings, patterns: Sequence[str]
) -> None:
    """Stores the globs of the input splits, and the settings for reading their files."""
    origin = {"settings": settings.model_dump(mode="json"), "patterns": list(patterns)}
    examples.set_string_custom_property(ORIGIN_PROPERTY, json.dumps(origin))


def read_origin(examples: types.Artifact) -> Iterator[Batch]:
    """Yields the rows of the original files again; none if they are unknown or too large.

    Files that are one example each are left out: they have no rows, and pictures take long to
    decode.

    Raises:
      DataError: the files have changed and can no longer be read.
    """
    text = examples.get_string_custom_property(ORIGIN_PROPERTY)
    if not text:
        return
    origin = json.loads(text)
    settings = ExampleGenSettings.model_validate(origin["settings"])
    if settings.format_spec.has_file_per_example:
        return
    source = make_source(settings)
    files_by_split = [sorted(fileio.glob(pattern)) for pattern in origin["patterns"]]
    groups = [
        group
        for files in files_by_split
        for group in source.plan([file for file in files if not is_hidden(file)])
    ]
    if sum(fileio.stat(file).length for group in groups for file in group) > MOST_BYTES:
        return
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    for group in groups:
        yield from source.read(group, kinds)
