"""What Beam remembers is what it would have found out."""

from __future__ import annotations

import json
import sys
import xml.dom.minidom
from collections.abc import Iterator
from types import ModuleType

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.typehints.decorators import TypeCheckError

from components.compat.beam import remember_lookups

PLACES = (
    (PipelineOptions, "view_as"),
    (userstate, "get_dofn_specs"),
    (core, "get_signature"),
    (cloudpickle, "_find_imported_submodules"),
)
ORIGINALS = [getattr(owner, name) for owner, name in PLACES]
"""Beam's own, unless a run in this process has replaced them already."""
STATE = beam.DoFn.StateParam(BagStateSpec("seen", VarIntCoder()))


class Counting(beam.DoFn):
    """With a state."""

    def process(self, element, seen=STATE):
        yield element


class Comparable(beam.DoFn):
    """Equal to others of its kind, and so without a hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable)

    __hash__ = None

    def process(self, element):
        yield element


@pytest.fixture(autouse=True)
def remembering() -> Iterator[None]:
    remember_lookups()
    yield
    for (owner, name), original in zip(PLACES, ORIGINALS, strict=True):
        setattr(owner, name, original)


def test_it_is_done_once() -> None:
    before = [getattr(owner, name) for owner, name in PLACES]
    remember_lookups()
    assert before == [getattr(owner, name) for owner, name in PLACES]
    assert all(hasattr(function, "__wrapped__") for function in before)


def test_views_share_their_values_and_not_those_of_other_options() -> None:
    first, second = PipelineOptions(["--streaming"]), PipelineOptions([])
    assert first.view_as(StandardOptions).streaming is True
    assert second.view_as(StandardOptions).streaming is False
    second.view_as(StandardOptions).streaming = True
    assert second.view_as(TypeOptions).view_as(StandardOptions).streaming is True
    assert second.get_all_options()["streaming"] is True
    assert first.view_as(TypeOptions).pipeline_type_check is True
    # Options that are copied, as Beam does for what it starts, go their own way.
    third = PipelineOptions(first._flags, **first.get_all_options())
    third.view_as(StandardOptions).streaming = False
    assert first.view_as(StandardOptions).streaming is True


def test_states_are_those_that_beam_finds() -> None:
    remembered, found_out = userstate.get_dofn_specs, userstate.get_dofn_specs.__wrapped__
    wrapped = core.CallableWrapperDoFn(lambda element: [element])
    for dofn in (Counting(), Comparable(), wrapped):
        expected = found_out(dofn)
        assert remembered(dofn) == remembered(dofn) == expected
    counting = Counting()
    userstate.get_dofn_specs(counting)[0].clear()
    assert userstate.is_stateful_dofn(counting)


def test_a_method_has_the_signature_of_what_it_is_bound_to() -> None:
    remembered, found_out = core.get_signature, core.get_signature.__wrapped__
    for function in (Counting().process, Comparable().process, Counting, len, str.strip, print):
        assert remembered(function) == remembered(function) == found_out(function)


def test_modules_that_a_function_uses_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def use() -> None:
        print(xml.dom.minidom, xml.sax.handler)

    remembered = cloudpickle._find_imported_submodules
    found_out = remembered.__wrapped__
    dependencies = [xml, beam, json, "no module", xml.dom]
    expected = found_out(use.__code__, dependencies)
    assert {module.__name__ for module in expected} >= {"xml.dom.minidom", "xml.dom"}
    assert remembered(use.__code__, dependencies) == expected
    late = ModuleType("xml.sax.handler")
    monkeypatch.setitem(sys.modules, "xml.sax", ModuleType("xml.sax"))
    monkeypatch.setitem(sys.modules, "xml.sax.handler", late)
    assert late in remembered(use.__code__, [xml])
    assert remembered(use.__code__, [xml]) == found_out(use.__code__, [xml])


def test_a_pipeline_with_states_runs() -> None:
    options = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
    with beam.Pipeline(argv=options) as pipeline:
        keyed = pipeline | beam.Create([("a", 1), ("a", 2), ("b", 3)])
        values = keyed | beam.ParDo(Counting()) | beam.Values()
        assert_that(values, equal_to([1, 2, 3]))
        with pytest.raises(TypeCheckError, match="requires PCollections of type '<class 'str'>'"):
            _ = keyed | "mistyped" >> beam.Map(len).with_input_types(str)
