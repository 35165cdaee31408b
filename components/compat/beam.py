"""Beam, as of 2.77: what it looks up hundreds of times while it builds a pipeline is remembered.

Four of its functions are wrapped, none of which its documentation names; the public way would be a
release that remembers by itself. `components.compat.speed` wraps none where one is not the
function known here: Beam then looks everything up anew, and run.log says so.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Signature
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import apache_beam as beam
import grpc
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.transforms import DoFn, core, userstate

from trainer_module.compat.insides import Known, require_known
from trainer_module.errors import InternalError
from trainer_module.strategies.network import LOCALHOST, find_exposed


def remember_lookups() -> None:
    """Lets Beam remember its own answers for as long as what they are about; once in a process.

    Each type check parses the pipeline's options anew, each use of a DoFn inspects the signatures
    of all its methods, and for each function that is pickled the names of all modules are looked
    through: almost a half of what the data components of a small table compute.
    """
    for owner, name, remember in (
        (PipelineOptions, "view_as", _remember_views),
        (userstate, "get_dofn_specs", _remember_specs),
        (core, "get_signature", _remember_signatures),
        (cloudpickle, "_find_imported_submodules", _remember_modules),
    ):
        function = getattr(owner, name)
        if not hasattr(function, "__wrapped__"):
            setattr(owner, name, remember(function))


def _remember_views(view_as: Any) -> Any:
    """Views of the same options share their values, so one of each kind does for all."""
    views: WeakKeyDictionary[PipelineOptions, dict[type, PipelineOptions]] = WeakKeyDictionary()

    @wraps(view_as)
    def remembered(self: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
        known = views.setdefault(self, {})
        view = known.get(cls)
        if view is None or view._all_options is not self._all_options:
            view = known[cls] = view_as(self, cls)
        return view

    return remembered


def _remember_specs(get_dofn_specs: Any) -> Any:
    """Returns a DoFn has the same states and timers as long as it lives."""
    known: WeakKeyDictionary[DoFn, tuple[set[Any], set[Any]]] = WeakKeyDictionary()

    @wraps(get_dofn_specs)
    def remembered(dofn: DoFn) -> tuple[set[Any], set[Any]]:
        if type(dofn).__hash__ is not object.__hash__:
            return get_dofn_specs(dofn)
        if dofn not in known:
            known[dofn] = get_dofn_specs(dofn)
        states, timers = known[dofn]
        return set(states), set(timers)

    return remembered


def _remember_signatures(get_signature: Any) -> Any:
    """Returns a method has the signature of its function, whatever it is bound to."""
    known: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()

    @wraps(get_signature)
    def remembered(function: Any) -> Signature:
        inner = getattr(function, "__func__", None)
        if not (isinstance(function, MethodType) and isinstance(inner, FunctionType)):
            return get_signature(function)
        if inner not in known:
            known[inner] = get_signature(function)
        return known[inner]

    return remembered


def _remember_modules(find_imported_submodules: Any) -> Any:
    """Below a package are the same modules until others are imported."""
    known: tuple[list[str], dict[str, list[tuple[str, set[str]]]]] = ([], {})

    def submodules(package: str) -> list[tuple[str, set[str]]]:
        """Returns the modules below a package, each with the names that lead from there to it."""
        nonlocal known
        names, below = known
        if (present := list(sys.modules)) != names:
            known = _, below = present, {}  # At once: Beam pickles in several threads.
        if package not in below:
            prefix = f"{package}."
            # Old pytests leave a module whose name is None.
            inside = (name for name in present if name and name.startswith(prefix))
            below[package] = [(name, set(name[len(prefix) :].split("."))) for name in inside]
        return below[package]

    @wraps(find_imported_submodules)
    def remembered(code: CodeType, dependencies: Iterable[Any]) -> list[ModuleType]:
        used = set(code.co_names)
        return [
            sys.modules[name]
            for package in dependencies
            if isinstance(package, ModuleType) and getattr(package, "__package__", None)
            for name, path in submodules(package.__name__)
            if path <= used
        ]

    return remembered


_HARNESS: Known = {
    "apache_beam.runners.worker.sdk_worker": {
        "SdkHarness._execute": "2a62fda30490",
    },
}

_exposed_before: set[int] = set()
"""The sockets of this process that answered other machines before Beam served."""


def listen_here_alone() -> None:
    """Lets Beam's servers listen on this machine's loopback, in this process from now on.

    Beam listens on all of the machine's addresses, and reads any file out to whoever asks for it.
    Replaced in `worker_handlers`: the module `grpc`, as that file sees it.

    Raises:
      InternalError: this Beam makes its servers in another way.
    """
    global _exposed_before
    module: Any = worker_handlers
    if getattr(module, "grpc", None) not in (grpc, _HERE):
        raise _unknown_beam()
    module.grpc = _HERE
    _exposed_before = set(find_exposed())


def check_listening() -> None:
    """Checks that no server has begun to answer other machines since `listen_here_alone`.

    Raises:
      InternalError: one has.
    """
    if find_exposed().keys() - _exposed_before:
        raise _unknown_beam()


class _Grpc:
    """The module `grpc` as Beam's servers see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> Any:
        """Returns a server that listens on the loopback, whatever host is named."""
        made: Any = grpc.server(*arguments, **options)
        listen = made.add_insecure_port
        made.add_insecure_port = lambda address: listen(f"{LOCALHOST}:{address.rpartition(':')[2]}")
        return made


_HERE = _Grpc()


def _unknown_beam() -> InternalError:
    return InternalError(
        f"Beam {beam.__version__} serves its workers in a way that this project cannot keep off the"
        " network; install the version in uv.lock, or set beam.workers: 1."
    )


class DescribingHarness(SdkHarness):
    """What a worker runs: Beam's own, which tells the run more of an error than its text.

    Overridden is the private method by which Beam runs what it is asked and reports an error.
    """

    def __init__(
        self, describe: Callable[[BaseException], str], *arguments: Any, **options: Any
    ) -> None:
        """As Beam makes it.

        Args:
          describe: what the run is told of an error.
          arguments: Beam's.
          options: Beam's.

        Raises:
          InternalError: this Beam reports errors in another way.
        """
        require_known(_HARNESS, "what a Beam worker says of an error")
        super().__init__(*arguments, **options)
        self._describe = describe

    def _execute(
        self,
        task: Callable[[], beam_fn_api_pb2.InstructionResponse],
        request: beam_fn_api_pb2.InstructionRequest,
    ) -> None:
        def attempt() -> beam_fn_api_pb2.InstructionResponse:
            try:
                return task()
            except BaseException as error:  # Also SystemExit, which a user's code may raise.
                traceback.print_exc()
                return beam_fn_api_pb2.InstructionResponse(
                    instruction_id=request.instruction_id, error=self._describe(error)
                )

        super()._execute(attempt, request)
