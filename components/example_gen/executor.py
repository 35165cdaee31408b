"""The executor of ArrowExampleGen. Beam distributes chunks of files, and Arrow and tfx_bsl process
the chunks.

TFX's ExampleGens spend most of their time on Beam elements that are single records. In this
executor a Beam element is a chunk.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, struct_pb2
from tfx import types
from tfx.components.example_gen import write_split
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.components.example_gen.write_split import DEFAULT_TF_RECORD_FILE_NAME
from tfx.components.util import examples_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as specs
from tfx.utils import proto_utils
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

from components.compat.tfx import make_beam_pipeline
from components.example_gen.checks.report import ChunkReport, check_report, is_kept
from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import DataNotes, write_notes
from components.example_gen.paths import literal
from components.example_gen.picture_files import check_encoded_pictures
from components.example_gen.planning import Chunk, Plan, make_plan, note_origin, plan_chunks
from components.example_gen.series import is_series
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Batch, Source, Survey
from components.example_gen.sources.pictures import limit_batches, read_pictures
from components.example_gen.sources.surveys import (
    ColumnKinds,
    gather_notes,
    merge_surveys,
    note_columns,
    note_unseen_values,
    with_known_dates,
)
from components.example_gen.splits import (
    Cuts,
    Ranks,
    assign_splits,
    cut_groups,
    rank_rows,
    split_hashes,
)
from components.row_counts import lost_rows_error, write_row_counts
from components.row_progress import count_rows, expect_rows
from components.split_files import Artifacts
from components.spreading import SpreadFiles
from components.tfrecords import open_writer, write_all


def pack_settings(settings: ExampleGenSettings) -> example_gen_pb2.CustomConfig:
    """Returns the settings packed as a protobuf Struct."""
    struct = struct_pb2.Struct()
    struct.update(settings.model_dump(mode="json"))
    config = example_gen_pb2.CustomConfig()
    config.custom_config.Pack(struct, deterministic=True)
    return config


def unpack_settings(custom_config: str) -> ExampleGenSettings:
    """Returns the settings in a CustomConfig, which executors receive as JSON."""
    config = example_gen_pb2.CustomConfig()
    proto_utils.json_to_proto(custom_config, config)
    struct = struct_pb2.Struct()
    config.custom_config.Unpack(struct)
    return ExampleGenSettings.model_validate(json_format.MessageToDict(struct))


def shard_name(shard: int, shards: int) -> str:
    """Returns the file name of a shard. Shards are counted from 0."""
    return f"{DEFAULT_TF_RECORD_FILE_NAME}-{shard:05d}-of-{shards:05d}.gz"


class ShardWriter:
    """A writer of gzipped TFRecord files.

    The files have temporary names until the `with` block ends without an error. A chunk that fails
    or is repeated therefore leaves no incomplete shard.
    """

    def __init__(self, temporary_folder: str) -> None:
        self._temporary_folder = temporary_folder
        self._writers: dict[str, tuple[str, tf.io.TFRecordWriter]] = {}
        self.rows: Counter[str] = Counter()
        """The number of rows in each file, by path."""

    def write(self, path: str, examples: Sequence[bytes]) -> None:
        """Appends serialized examples to the shard whose final path is `path`."""
        if path not in self._writers:
            temporary = posixpath.join(self._temporary_folder, uuid.uuid4().hex)
            self._writers[path] = temporary, open_writer(temporary)
        write_all(self._writers[path][1], examples)
        self.rows[path] += len(examples)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for path, (temporary, writer) in self._writers.items():
            writer.close()
            if error is None:
                fileio.rename(temporary, path, overwrite=True)


_NOTES_FILE = "found.json"


class _WriteChunk(beam.DoFn):
    """A DoFn that writes the examples of a chunk to the splits, and yields the ChunkReport."""

    def __init__(self, plan: Plan, source: Source) -> None:
        self._plan = plan
        self._source = source

    def process(
        self, chunk: Chunk, kinds: dict[str, ColumnKind], cuts: Cuts | None
    ) -> Iterator[ChunkReport]:
        plan, report, encoder = self._plan, ChunkReport(chunks=1), RecordBatchToExamplesEncoder()
        with ShardWriter(plan.temporary_folder) as writer:
            batches = _read(self._source, chunk, kinds)
            batches = limit_batches(batches) if plan.settings.pictures else batches
            for number, batch in enumerate(batches):
                report.files.add(batch.notes)
                if not batch.rows.num_rows:
                    continue
                check_encoded_pictures(batch.rows, batch.first, plan.settings)
                rows, usable = read_pictures(batch.rows, batch.first, plan.settings, report.files)
                splits = np.where(usable, self._assign(chunk, batch, cuts), -1)
                report.add_rows(batch.rows, splits, plan.split_names, batch.first, plan.settings)
                examples = np.array(batch.examples or encoder.encode(rows), object)
                shard = chunk.first_shard + number % chunk.shards
                name = shard_name(shard, chunk.all_shards)
                for split in np.unique(splits[splits >= 0]):
                    path = posixpath.join(plan.split_folders[split], name)
                    writer.write(path, examples[splits == split])
        report.shards.update(writer.rows)
        yield report

    def _assign(self, chunk: Chunk, batch: Batch, cuts: Cuts | None) -> np.ndarray:
        """Returns the index of each row's split, [rows]. The index is -1 for a row without a split,
        which is left out.
        """
        plan = self._plan
        kept = is_kept(batch.rows, plan.settings)
        splits = np.full(batch.rows.num_rows, chunk.input_split)
        if cuts is not None:
            ranks = rank_rows(batch.rows, batch.first, plan.settings)
            splits[kept] = cuts.assign(ranks.only(kept))
        elif plan.hash_buckets:
            hashes = split_hashes(batch.rows, plan.partition_feature)
            splits = assign_splits(hashes, plan.hash_buckets)
        return np.where(kept, splits, -1)


class Executor(BaseExampleGenExecutor):
    """An executor that reads, checks and writes the examples in one Beam pipeline."""

    def GetInputSourceToExamplePTransform(self) -> beam.PTransform:  # noqa: N802 - TFX's name
        """Raises NotImplementedError: `Do` does not need a transform to single records."""
        raise NotImplementedError("ArrowExampleGen writes examples in chunks, not one by one.")

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Writes gzipped TFRecord shards of tf.Examples into the artifact's split folders.

        Raises:
          DataError: the data cannot be used. Beam may wrap a worker's DataError in a RuntimeError.
        """
        input_config, output_config = example_gen_pb2.Input(), example_gen_pb2.Output()
        proto_utils.json_to_proto(exec_properties[specs.INPUT_CONFIG_KEY], input_config)
        proto_utils.json_to_proto(exec_properties[specs.OUTPUT_CONFIG_KEY], output_config)
        examples = artifact_utils.get_single_instance(output_dict[specs.EXAMPLES_KEY])
        plan = make_plan(
            examples,
            input_config,
            output_config,
            with_known_dates(unpack_settings(exec_properties[specs.CUSTOM_CONFIG_KEY])),
        )
        source = make_source(plan.settings)
        base = exec_properties[specs.INPUT_BASE_KEY]
        chunks, notes = plan_chunks(source, base, input_config, plan.settings)
        for folder in (*plan.split_folders, plan.temporary_folder):
            fileio.makedirs(folder)
        self._run(plan, source, chunks)
        data_notes = _read_data_notes(plan)
        write_notes(examples, DataNotes([*notes, *data_notes.sentences], data_notes.dates))
        fileio.rmtree(plan.temporary_folder)
        _set_formats(examples, exec_properties)
        folder = literal(base)
        patterns = [posixpath.join(folder, split.pattern) for split in input_config.splits]
        note_origin(examples, plan.settings, patterns)
        logging.getLogger(__name__).info("Examples generated.")

    def _run(self, plan: Plan, source: Source, chunks: list[Chunk]) -> None:
        settings = plan.settings
        with make_beam_pipeline(self) as pipeline:
            files = [file for chunk in chunks for group in chunk.groups for file in group]
            planned = pipeline | "Plan" >> SpreadFiles(chunks, files)
            surveys = (
                planned
                | "Survey" >> beam.FlatMap(lambda chunk: map(source.survey, chunk.groups))
                | "ListSurveys" >> beam.combiners.ToList()
            )
            passes = 2 if plan.is_ranked else 1
            kinds = surveys | "MergeSurveys" >> beam.Map(_merge_surveys, settings, passes)
            column_kinds = beam.pvalue.AsSingleton(kinds)
            cuts = None
            if plan.is_ranked:
                ranks = (
                    planned
                    | "Rank" >> beam.FlatMap(_rank_chunk, column_kinds, source, settings)
                    | "ListRanks" >> beam.combiners.ToList()
                )
                cuts = beam.pvalue.AsSingleton(ranks | "Cut" >> beam.Map(_find_cuts, plan))
            (
                planned
                | "Write" >> beam.ParDo(_WriteChunk(plan, source), column_kinds, cuts)
                | "SumReports" >> beam.CombineGlobally(ChunkReport.sum)
                | "KeepCounts" >> beam.Map(_store_row_counts, plan, len(chunks))
                | "Check"
                >> beam.Map(
                    check_report,
                    plan.split_names,
                    plan.hash_buckets,
                    settings,
                    plan.could_stratify,
                )
                | "WriteNotes"
                >> beam.Map(
                    _write_data_notes, plan, beam.pvalue.AsSingleton(surveys), column_kinds, cuts
                )
            )


def _read(source: Source, chunk: Chunk, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
    """Yields the rows of all files of a chunk."""
    for files in chunk.groups:
        for batch in source.read(files, kinds):
            yield batch
            count_rows(batch.rows.num_rows)


def _merge_surveys(surveys: list[Survey], settings: ExampleGenSettings, passes: int) -> ColumnKinds:
    """Returns the kinds of all columns, and announces how many rows will be read."""
    if all(survey.rows for survey in surveys):
        expect_rows(passes * sum(survey.rows for survey in surveys))
    return merge_surveys(surveys, settings)


def _rank_chunk(
    chunk: Chunk, kinds: dict[str, ColumnKind], source: Source, settings: ExampleGenSettings
) -> Iterator[Ranks]:
    for batch in _read(source, chunk, kinds):
        yield rank_rows(batch.rows, batch.first, settings).only(is_kept(batch.rows, settings))


def _find_cuts(ranks: list[Ranks], plan: Plan) -> Cuts:
    settings = plan.settings
    cuts = cut_groups(ranks, plan.split_names, plan.hash_buckets, settings.order_by)
    lacks_lags = settings.order_by and settings.lags is None
    if not lacks_lags or settings.task.is_classification:
        return cuts
    if not is_series(np.concatenate([part.keys for part in ranks])):
        return cuts
    note = (
        f"the rows are a series, one for each {settings.order_by!r}, and the model does not read"
        " the labels before a row; to add some that are known when a row is predicted, such as"
        " those 7 and 28 days before: data: {lags: [7, 28]}"
    )
    return replace(cuts, notes=[*cuts.notes, note])


def _store_row_counts(report: ChunkReport, plan: Plan, chunks: int) -> ChunkReport:
    """Stores the number of rows of each written file, after checking that no chunk is missing."""
    if report.chunks != chunks:
        raise lost_rows_error(f"{report.chunks:,} of {chunks:,} chunks of the data were written")
    write_row_counts(
        plan.uri, {posixpath.relpath(p, plan.uri): n for p, n in report.shards.items()}
    )
    return report


def _write_data_notes(
    data_notes: DataNotes,
    plan: Plan,
    surveys: list[Survey],
    kinds: ColumnKinds,
    cuts: Cuts | None,
) -> None:
    """Writes all notes to a temporary file for `Do`, as this worker may run on another machine."""
    notes = [
        *gather_notes(surveys),
        *note_unseen_values(surveys, plan.settings),
        *note_columns(surveys, kinds, plan.settings),
        *data_notes.sentences,
        *(cuts.notes if cuts is not None else []),
    ]
    with fileio.open(posixpath.join(plan.temporary_folder, _NOTES_FILE), "w") as file:
        file.write(DataNotes(notes, data_notes.dates).to_json())


def _read_data_notes(plan: Plan) -> DataNotes:
    with fileio.open(posixpath.join(plan.temporary_folder, _NOTES_FILE), "r") as file:
        return DataNotes.from_json(file.read())


def _set_formats(examples: types.Artifact, exec_properties: dict[str, Any]) -> None:
    """Sets the artifact's payload format and file format, as the `Do` of TFX's ExampleGen does."""
    payload_format = exec_properties.get(specs.OUTPUT_DATA_FORMAT_KEY)
    if payload_format:
        examples_utils.set_payload_format(examples, payload_format)
    file_format = exec_properties.get(specs.OUTPUT_FILE_FORMAT_KEY)
    if file_format:
        examples_utils.set_file_format(examples, write_split.to_file_format_str(file_format))
