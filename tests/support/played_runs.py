"""Runs that a test plays: nodes of an Argo workflow in the form of Kubeflow's API, and logs.

Names, ids and children are those that Argo Workflows and Kubeflow's compiler give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from uuid import uuid4

WORKFLOW = "digits-x7k2p"
HANDLER = f"{WORKFLOW}.root.exit-handler-1"
NEVER = "0001-01-01T00:00:00Z"
ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}


def node_id(name: str) -> str:
    fnv = reduce(lambda h, b: ((h ^ b) * 16777619) % 2**32, name.encode(), 2166136261)
    return WORKFLOW if name == WORKFLOW else f"{WORKFLOW}-{fnv}"


@dataclass
class Frame:
    """How a run is at one look: its state, and those of its steps that have begun."""

    state: str
    steps: dict[str, str] = field(default_factory=dict)
    """States by task; `driver:NAME` is the state of what Kubeflow runs before it."""
    attempts: dict[str, int] = field(default_factory=dict)


@dataclass
class Play:
    """A run, look by look; the last frame stays."""

    frames: list[Frame] = field(default_factory=lambda: [Frame("PENDING")])
    logs: dict[str, str] = field(default_factory=dict)
    """By task, of its latest attempt; tasks without have lost their pods."""
    looks: int = 0

    def look(self, run: str) -> tuple[str, list[dict[str, Any]]]:
        frame = self.frames[min(self.looks, len(self.frames) - 1)]
        self.looks += 1
        return frame.state, [detail | {"run_id": run} for detail in self._nodes(frame)]

    @property
    def now(self) -> Frame:
        return self.frames[min(max(self.looks - 1, 0), len(self.frames) - 1)]

    def log(self, pod: str) -> str | None:
        for task, log in self.logs.items():
            if task in self.now.steps and pod == self._pod(task, self.now):
                return log
        return None

    def _attempt(self, task: str, frame: Frame) -> str:
        return f"{_parent(task)}.{task}.executor({frame.attempts.get(task, 1) - 1})"

    def _pod(self, task: str, frame: Frame) -> str:
        node = node_id(self._attempt(task, frame))
        return node.replace(WORKFLOW, f"{WORKFLOW}-retry-system-container-impl")

    def _nodes(self, frame: Frame) -> list[dict[str, Any]]:
        if not frame.steps:
            return []
        tasks = [task for task in frame.steps if not task.startswith("driver:")]
        first = f"{HANDLER}.{tasks[0]}-driver" if tasks else f"{HANDLER}.none"
        state = "RUNNING" if frame.state not in ENDED else frame.state
        nodes = [
            _node(WORKFLOW, state, [f"{WORKFLOW}.root-driver"]),
            _node(f"{WORKFLOW}.root-driver", "SUCCEEDED", [f"{WORKFLOW}.root"]),
            _node(f"{WORKFLOW}.root", state, [f"{HANDLER}-driver"]),
            _node(f"{HANDLER}-driver", "SUCCEEDED", [HANDLER]),
            _node(HANDLER, state, [first]),
        ]
        before = ""
        for i, task in enumerate(frame.steps):
            name = task.removeprefix("driver:")
            parent = _parent(name)
            if parent.endswith(".onExit"):
                nodes.append(_node(parent, state, [f"{parent}.{name}-driver"]))
            elif before:
                nodes[-1]["child_tasks"] = [{"pod_name": node_id(f"{parent}.{name}-driver")}]
            if name != task:
                nodes.append(_node(f"{parent}.{name}-driver", frame.steps[task], []))
                continue
            nodes += self._step(name, parent, frame, i)
            before = name
        return nodes

    def _step(self, task: str, parent: str, frame: Frame, i: int) -> list[dict[str, Any]]:
        own, state = f"{parent}.{task}", frame.steps[task]
        nodes = [
            _node(f"{own}-driver", "SUCCEEDED", [own], i),
            _node(own, state, [f"{own}.executor"], i),
        ]
        count = frame.attempts.get(task, 1)
        attempts = [f"{own}.executor({k})" for k in range(count)]
        nodes.append(_node(f"{own}.executor", state, attempts, i))
        states = ["FAILED"] * (count - 1) + [state]
        return nodes + [_node(a, s, [], i) for a, s in zip(attempts, states, strict=True)]


def _parent(task: str) -> str:
    return f"{HANDLER}.onExit" if task == "conclude" else HANDLER


def _node(name: str, state: str, children: list[str], i: int = 0) -> dict[str, Any]:
    display = name if name == WORKFLOW else name.rpartition(".")[2]
    if display == "onExit":
        display = "exit-handler-1.onExit"
    return {
        "task_id": str(uuid4()),
        "display_name": display,
        "create_time": "2026-01-05T03:00:00Z",
        "start_time": f"2026-01-05T03:{i:02}:00Z",
        "end_time": f"2026-01-05T03:{i:02}:30Z" if state in ENDED else NEVER,
        "state": state,
        "child_tasks": [{"pod_name": node_id(child)} for child in children],
    }
