"""The OpenLineage events of a run, compared with what OpenLineage's own client makes of them."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from openlineage.client import event_v2, facet_v2
from openlineage.client.serde import Serde

from pipeline.records.details import ArtifactDetails, ColumnDetails, Lineage, RunDetails
from pipeline.records.summary import ComponentSummary, ErrorSummary, RunSummary, State, Status
from pipeline.report.lineage_events import lineage_text

FACETS: dict[str, Any] = {
    kind._get_schema(): kind
    for module in vars(facet_v2).values()
    if isinstance(module, ModuleType)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, facet_v2.BaseFacet)
}
"""The client's classes by the URL of their schema."""
HOSTILE = '<b>"\n\u202e\x00'


def facets(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: FACETS[facet["_schemaURL"]](
            producer=facet["_producer"],
            **{key: value for key, value in facet.items() if not key.startswith("_")},
        )
        for name, facet in found.items()
    }


def datasets(kind: Any, own: str, found: list[dict[str, Any]]) -> list[Any]:
    return [
        kind(
            **{key: value for key, value in one.items() if not isinstance(value, dict)},
            facets=facets(one["facets"]),
            **{own: facets(one[own]) if own in one else None},
        )
        for one in found
    ]


def rebuild(found: dict[str, Any]) -> Any:
    """Makes an event by the client's classes, which take no key that the schema does not have."""
    return event_v2.RunEvent(
        eventType=event_v2.RunState(found["eventType"]),
        eventTime=found["eventTime"],
        producer=found["producer"],
        run=event_v2.Run(found["run"]["runId"], facets(found["run"]["facets"])),
        job=event_v2.Job(**{**found["job"], "facets": facets(found["job"]["facets"])}),
        inputs=datasets(event_v2.InputDataset, "inputFacets", found["inputs"]),
        outputs=datasets(event_v2.OutputDataset, "outputFacets", found["outputs"]),
    )


def summary(status: Status = Status.PUSHED, **fields: Any) -> RunSummary:
    states = {Status.FAILED: State.FAILED, Status.INTERRUPTED: State.INTERRUPTED}
    last = states.get(status, State.RAN)
    components = [
        ("ExampleGen", State.RAN, "2026-11-27T03:00:05+00:00"),
        ("Trainer", last, "2026-11-27T03:00:20+00:00"),
        ("Pusher", State.SKIPPED, "2026-11-27T03:00:40+00:00"),
    ]
    lineage = Lineage(
        artifacts=[
            ArtifactDetails(
                id=1,
                type="Examples",
                uri="/out/ExampleGen/1",
                producer="ExampleGen",
                consumers=["Trainer"],
                bytes=512,
            ),
            ArtifactDetails(
                id=2, type="Model", uri="gs://bucket/a b/2", producer="Trainer", bytes=None
            ),
        ],
        config="c0ffee",
        versions={"tfx": "1.21.0"},
    )
    details = RunDetails(
        config={"data": {"format": "csv", "path": "s3://me:secret@store/in/*.csv?token=secret"}},
        columns=[ColumnDetails(name=HOSTILE, type="numeric", splits={})],
        lineage=lineage,
    )
    return RunSummary(
        run_id="2026-11-27T03-00-00.000000",
        pipeline="taxi",
        status=status,
        started="2026-11-27T03:00:00+00:00",
        seconds=60,
        strategy="mirrored",
        components=[
            ComponentSummary(name=name, state=state, seconds=10, started=started)
            for name, state, started in components
        ],
        examples={"train": 8, "eval": 2},
        details=details,
        **fields,
    )


@pytest.mark.parametrize(
    ("status", "end"),
    [(Status.NOT_BLESSED, "COMPLETE"), (Status.FAILED, "FAIL"), (Status.INTERRUPTED, "ABORT")],
)
def test_the_client_of_openlineage_makes_the_same_events(status: Status, end: str) -> None:
    error = ErrorSummary(component="Trainer", message=HOSTILE, log="run.log")
    lines = lineage_text(summary(status, error=error)).splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        assert Serde.to_dict(rebuild(event)) == event
    assert [(event["eventType"], event["job"]["name"]) for event in events] == [
        ("START", "taxi"),
        ("START", "taxi.ExampleGen"),
        ("COMPLETE", "taxi.ExampleGen"),
        ("START", "taxi.Trainer"),
        (end, "taxi.Trainer"),
        (end, "taxi"),
    ]
    runs = {event["job"]["name"]: event["run"] for event in events}
    parent = runs["taxi.Trainer"]["facets"]["parent"]
    assert parent["run"]["runId"] == runs["taxi"]["runId"] != runs["taxi.Trainer"]["runId"]
