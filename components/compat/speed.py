"""The functions of this package that speed up libraries, and the code that each function replaces.

The changed libraries give the same results. A function changes its library only in this process,
and only if the replaced code has the expected hash.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from trainer_module.compat.insides import Known, find_changes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """A function of this package that changes a library."""

    library: str
    """The module that has to be imported before the change is applied."""
    function: str
    """The name of a module of this package and of a function in the module."""
    known: Known
    """The hashes of the code that the function replaces or reproduces; see `insides`."""


CHANGES = (
    Change(
        "apache_beam",
        "beam.remember_lookups",
        {
            "apache_beam.options.pipeline_options": {"PipelineOptions.view_as": "3fd63693be9c"},
            "apache_beam.transforms.userstate": {"get_dofn_specs": "eeb36145d311"},
            "apache_beam.transforms.core": {"get_signature": "35bbf98cd713"},
            "apache_beam.internal.cloudpickle.cloudpickle": {
                "_find_imported_submodules": "72a2f8605bfd"
            },
        },
    ),
    Change(
        "tfx_bsl.coders.batch_util",
        "tfx_bsl.batch_by_bytes",
        {
            "tfx_bsl.coders.batch_util": {
                "_UseByteSizeBatching": "a4fe2883dc1c",
                "GetBatchElementsKwargs": "492e79455de9",
            }
        },
    ),
    Change(
        "tfx.components.util.tfxio_utils",
        "tfx_bsl.read_by_batches",
        {
            "tfx.components.util.tfxio_utils": {"make_tfxio": "23fc2cc75522"},
            "tfx_bsl.tfxio.tf_example_record": {
                "TFExampleRecord": "4451a042806b",
                "_TFExampleRecordBase": "8d8a8a68e9d1",
                "_DecodeBatchExamplesDoFn": "bc4b28ad05ec",
            },
            "tfx_bsl.tfxio.record_based_tfxio": {
                "RecordBasedTFXIO": "4c38dfd49e09",
                "AppendRawRecordColumn": "8b7c3ee2ce8a",
                "ReadTfRecord": "b237bfa40e78",
            },
        },
    ),
    Change(
        "tensorflow_transform.beam",
        "tft.look_up_sources",
        {
            "tensorflow_transform.graph_tools": {
                "retrieve_sources": "7ec1517d4b36",
                "_retrieve_source_keys": "bbdf80e0c0d8",
                "_set_unique_value_in_dict": "5bb00143b247",
                "_decompose_tensor_or_op": "d43f87b90940",
                "InitializableGraphAnalyzer.__init__": "38a666635283",
                "InitializableGraphAnalyzer.get_dependent_inputs": "d6e73c14fa8f",
                "get_dependent_inputs": "5e6e681a129e",
            }
        },
    ),
    Change(
        "tensorflow_transform.beam",
        "tft.share_transform_graphs",
        {
            "tensorflow_transform.beam.impl": {
                "_RunMetaGraphDoFn._make_graph_state": "2a4ed264c690",
                "_RunMetaGraphDoFn._GraphStateV2": "fa8ee9b06947",
            }
        },
    ),
    Change(
        "tfx.components.transform.executor",
        "tfx_transform.write_by_batches",
        {
            "tfx.components.transform.executor": {
                "TransformProcessor._EncodeAndWrite": "72f94ad38ce2",
                "TransformProcessor._RecordBatchToExamplesFn": "a6fa2cb55ccd",
            }
        },
    ),
)


def speed_up() -> None:
    """Applies the changes to the libraries that this process has imported.

    Repeated calls have no effect. A library with other code is not changed, because its
    results might differ.
    """
    libraries = imported_libraries()
    for change in CHANGES:
        if change.library in libraries:
            _apply(change)


def imported_libraries() -> list[str]:
    """Returns the imported libraries for which there are changes."""
    return [library for library in {c.library: None for c in CHANGES} if library in sys.modules]


def _apply(change: Change) -> None:
    if differing := find_changes(change.known):
        _warn(change.function, "; ".join(differing))
        return
    module, function = change.function.split(".")
    getattr(import_module(f"{__package__}.{module}"), function)()


@cache
def _warn(function: str, differing: str) -> None:
    logger.warning("The run is slower, without %s: %s", function, differing)
