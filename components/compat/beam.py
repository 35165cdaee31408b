"""Beam, as of 2.77: caches for lookups that it repeats hundreds of times while it builds a
pipeline.

Four of its functions are wrapped, none of which is documented; the public way would be a release
with caches of its own. `components.compat.speed` wraps none if one is not the known function: Beam
then repeats the lookups, and run.log reports it.
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
    """Caches Beam's lookups for as long as the objects that they concern exist; once in a process.

    Each type check parses the pipeline's options again, each use of a DoFn inspects the signatures
    of all its methods, and for each pickled function the names of all modules are searched: almost
    half of the data components' CPU time for a small table.
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
    """Returns `view_as` with a cache; views of the same options share their values."""
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
    """Returns `get_dofn_specs` with a cache; the states and timers of a DoFn never change."""
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
    """Returns `get_signature` with a cache; a method has the signature of its function, whatever it
    is bound to.
    """
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
    """Returns the search for submodules with a cache that is valid until other modules are
    imported.
    """
    known: tuple[list[str], dict[str, list[tuple[str, set[str]]]]] = ([], {})

    def submodules(package: str) -> list[tuple[str, set[str]]]:
        """Returns the modules below a package, each with the components of its relative name."""
        nonlocal known
        names, below = known
        if (present := list(sys.modules)) != names:
            known = _, below = present, {}  # At once: Beam pickles in several threads.
        if package not in below:
            prefix = f"{package}."
            # Old versions of pytest register a module whose name is None.
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
"""The sockets of this process that were open to other machines before Beam served."""


def listen_on_loopback() -> None:
    """Restricts Beam's servers in this process to this machine's loopback interface.

    Beam listens on all of the machine's addresses, and serves any file on request. The replaced
    object is the module `grpc` in `worker_handlers`.

    Raises:
      InternalError: the installed Beam creates its servers differently.
    """
    global _exposed_before
    module: Any = worker_handlers
    if getattr(module, "grpc", None) not in (grpc, _LOOPBACK):
        raise _unknown_beam()
    module.grpc = _LOOPBACK
    _exposed_before = set(find_exposed())


def check_listening() -> None:
    """Raises InternalError if a server was opened to other machines since `listen_on_loopback`.

    Raises:
      InternalError: there is such a server.
    """
    if find_exposed().keys() - _exposed_before:
        raise _unknown_beam()


class _Grpc:
    """The module `grpc` as Beam's servers see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> Any:
        """Returns a server that listens on the loopback interface, whatever host is given."""
        made: Any = grpc.server(*arguments, **options)
        listen = made.add_insecure_port
        made.add_insecure_port = lambda address: listen(f"{LOCALHOST}:{address.rpartition(':')[2]}")
        return made


_LOOPBACK = _Grpc()


def _unknown_beam() -> InternalError:
    return InternalError(
        f"Beam {beam.__version__} opens ports for its workers that Scopeline cannot restrict to"
        " this machine; install the version in uv.lock, or set beam.workers: 1."
    )


class DescribingHarness(SdkHarness):
    """Beam's worker harness, with errors that are encoded for the run.

    It overrides the private method by which Beam executes a request and reports an error.
    """

    def __init__(
        self, describe: Callable[[BaseException], str], *arguments: Any, **options: Any
    ) -> None:
        """Creates the harness with Beam's arguments.

        Args:
          describe: encodes an error for the run.
          arguments: Beam's arguments.
          options: Beam's keyword arguments.

        Raises:
          InternalError: the installed Beam reports errors differently.
        """
        require_known(_HARNESS, "the errors of Beam's workers")
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
