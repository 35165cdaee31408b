"""What Beam remembers is what it would have found out."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import BagStateSpec

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
