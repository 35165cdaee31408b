"""The plan of example generation: the chunks of files, and the splits and shards for their rows."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tfx import types
from tfx.components.example_gen import utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.paths import (
    find_neighbours,
    is_hidden,
    is_remote,
    literal,
    no_file_error,
)
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Batch, Files, Source
from components.example_gen.sources.surveys import merge_surveys

# The input bytes for each shard of a large file. Several shards allow later steps to read in
# parallel.
_SHARD_BYTES = 128 << 20
# The input bytes for each shard of a table with paths of pictures. A few kilobytes of paths have
# about as many rows as a shard of pictures.
_PATHS_SHARD_BYTES = 32 << 10
# The maximum input bytes of the small files that share a shard. A shard takes each step about as
# long as some thousand rows, so many small shards would be slow.
_BUNDLE_BYTES = 8 << 20
# The minimum number of bundles of small files, so that several processes can share little data.
_MIN_BUNDLES = 8
# The maximum number of shards of a large file, as its reader writes to all shards at the same time.
_MAX_SHARDS = 64


@dataclass(frozen=True)
class Chunk:
    """A unit of work for Beam: files to read, and the shards for their rows."""

    groups: tuple[Files, ...]
    """The groups of files. The files of a group are read together."""
    input_split: int
    """The index of the input split that contains the files."""
    first_shard: int
    """The number of the chunk's first shard."""
    shards: int
    all_shards: int
    """The number of shards of all chunks of the input split."""


@dataclass(frozen=True)
class Plan:
    """The settings and splits that each worker receives."""

    settings: ExampleGenSettings
    split_names: list[str]
    split_folders: list[str]
    hash_buckets: list[int]
    """The number of hash buckets of each split, or an empty list if each input split is an output
    split.
    """
    partition_feature: str | None
    """The column whose hash determines the split, or None if the whole row determines the split."""
    uri: str
    """The folder of the examples."""

    @property
    def temporary_folder(self) -> str:
        """The folder for files that are not complete yet."""
        return posixpath.join(self.uri, ".incomplete")

    @property
    def is_ranked(self) -> bool:
        """Whether a row's split depends on the other rows."""
        return self.settings.stratify or bool(self.settings.order_by)

    @property
    def could_stratify(self) -> bool:
        """Whether the config may set data.stratify in addition."""
        by_record = self.partition_feature is None and not self.is_ranked
        return bool(self.hash_buckets) and by_record


def make_plan(
    examples: types.Artifact,
    input_config: example_gen_pb2.Input,
    output_config: example_gen_pb2.Output,
    settings: ExampleGenSettings,
) -> Plan:
    """Sets the splits of the examples' artifact and returns the plan."""
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
    """Returns the chunks of all input splits, and notes on files that are left out.

    Small files share a chunk. The shards of each input split are numbered from 0.
    """
    chunks, notes = [], []
    shard_bytes = _PATHS_SHARD_BYTES if settings.pictures else _SHARD_BYTES
    for index, split in enumerate(input_config.splits):
        pattern = posixpath.join(literal(input_base), split.pattern)
        files = [file for file in sorted(fileio.glob(pattern)) if not is_hidden(file)]
        groups = source.plan(files)
        if not groups:
            local = not is_remote(pattern)
            neighbours = find_neighbours(Path(input_base), split.pattern) if local else ()
            raise no_file_error(pattern, neighbours)
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
    """Yields bundles of groups in order, each with its number of shards. A large group is a bundle
    of its own.
    """
    sizes = [_size(files) for files in groups]
    max_size = min(_BUNDLE_BYTES, shard_bytes, sum(sizes) // _MIN_BUNDLES)
    bundle, size = list[Files](), 0
    for files, group_size in zip(groups, sizes, strict=True):
        if bundle and size + group_size > max_size:
            yield tuple(bundle), _count_shards(size, shard_bytes)
            bundle, size = [], 0
        bundle.append(files)
        size += group_size
    yield tuple(bundle), _count_shards(size, shard_bytes)


def _size(files: Files) -> int:
    # A group of more than two files consists of pictures for one shard. Reading their sizes would
    # take long.
    return sum(fileio.stat(file).length for file in files) if len(files) <= 2 else _BUNDLE_BYTES


def _count_shards(size: int, shard_bytes: int) -> int:
    return min(1 + size // shard_bytes, _MAX_SHARDS)


ORIGIN_PROPERTY = "origin"
"""The property of the examples' artifact with the globs and the settings as JSON."""

MAX_REREAD_BYTES = 256 << 20
"""The maximum size of the files that `read_origin` reads, in bytes, as the user waits for it."""


def note_origin(
    examples: types.Artifact, settings: ExampleGenSettings, patterns: Sequence[str]
) -> None:
    """Stores the globs of the input splits and the settings for reading their files with the
    examples' artifact.
    """
    origin = {"settings": settings.model_dump(mode="json"), "patterns": list(patterns)}
    examples.set_string_custom_property(ORIGIN_PROPERTY, json.dumps(origin))


def read_origin(examples: types.Artifact) -> Iterator[Batch]:
    """Reads the original files of the examples again and yields their rows.

    The function yields nothing if the files are not recorded or too large, or if each file is one
    example: decoding pictures takes long.

    Raises:
      DataError: the files can no longer be read, for instance because they have changed.
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
    if sum(fileio.stat(file).length for group in groups for file in group) > MAX_REREAD_BYTES:
        return
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    for group in groups:
        yield from source.read(group, kinds)
