"""Private parts of Beam 2.77: faster lookups, servers for this machine only, errors of workers.

Beam repeats some lookups hundreds of times while it builds a pipeline. Four undocumented functions
are therefore wrapped in caches; without private parts, Beam itself would have to cache them. If one
of the four functions has changed, `components.compat.speed` wraps none of them: Beam then repeats
the lookups, and run.log reports it.
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
    """Adds caches to four of Beam's functions; repeated calls have no effect.

    Without caches, each type check parses the pipeline's options again, each use of a DoFn inspects
    the signatures of all its methods, and each pickled function searches the names of all modules.
    For a small table, these lookups take almost half of the data components' CPU time.
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
    """Returns `view_as` with a cache. Views of the same options share their values."""
    views: WeakKeyDictionary[PipelineOptions, dict[type, PipelineOptions]] = WeakKeyDictionary()

    @wraps(view_as)
    def cached_lookup(self: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
        by_class = views.setdefault(self, {})
        view = by_class.get(cls)
        if view is None or view._all_options is not self._all_options:
            view = by_class[cls] = view_as(self, cls)
        return view

    return cached_lookup


def _remember_specs(get_dofn_specs: Any) -> Any:
    """Returns `get_dofn_specs` with a cache. The states and timers of a DoFn never change."""
    cached: WeakKeyDictionary[DoFn, tuple[set[Any], set[Any]]] = WeakKeyDictionary()

    @wraps(get_dofn_specs)
    def cached_lookup(dofn: DoFn) -> tuple[set[Any], set[Any]]:
        if type(dofn).__hash__ is not object.__hash__:
            return get_dofn_specs(dofn)
        if dofn not in cached:
            cached[dofn] = get_dofn_specs(dofn)
        states, timers = cached[dofn]
        return set(states), set(timers)

    return cached_lookup


def _remember_signatures(get_signature: Any) -> Any:
    """Returns `get_signature` with a cache for methods. All methods that are bound from the same
    function have the same signature.
    """
    cached: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()

    @wraps(get_signature)
    def cached_lookup(function: Any) -> Signature:
        inner = getattr(function, "__func__", None)
        if not (isinstance(function, MethodType) and isinstance(inner, FunctionType)):
            return get_signature(function)
        if inner not in cached:
            cached[inner] = get_signature(function)
        return cached[inner]

    return cached_lookup


def _remember_modules(find_imported_submodules: Any) -> Any:
    """Returns the search for submodules with a cache that is valid until other modules are
    imported.
    """
    cached: tuple[list[str], dict[str, list[tuple[str, set[str]]]]] = ([], {})

    def submodules(package: str) -> list[tuple[str, set[str]]]:
        """Returns the modules below a package, each with the parts of its relative name."""
        nonlocal cached
        names, by_package = cached
        if (current := list(sys.modules)) != names:
            # Beam pickles in several threads, so one assignment replaces both values.
            cached = _, by_package = current, {}
        if package not in by_package:
            prefix = f"{package}."
            # Old versions of pytest register a module whose name is None.
            inner = (name for name in current if name and name.startswith(prefix))
            by_package[package] = [(name, set(name[len(prefix) :].split("."))) for name in inner]
        return by_package[package]

    @wraps(find_imported_submodules)
    def cached_lookup(code: CodeType, dependencies: Iterable[Any]) -> list[ModuleType]:
        used_names = set(code.co_names)
        return [
            sys.modules[name]
            for package in dependencies
            if isinstance(package, ModuleType) and getattr(package, "__package__", None)
            for name, parts in submodules(package.__name__)
            if parts <= used_names
        ]

    return cached_lookup


_HARNESS: Known = {"apache_beam.runners.worker.sdk_worker": {"SdkHarness._execute": "2a62fda30490"}}

_exposed_before: set[int] = set()
"""The sockets of this process that were open to other machines before Beam's servers started."""


def listen_on_loopback() -> None:
    """Restricts Beam's servers in this process to the loopback interface.

    By default Beam listens on all of the machine's addresses, and serves any file on request. The
    function replaces the module `grpc` in `worker_handlers`.

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
    """Checks that this process has opened no server to other machines since `listen_on_loopback`.

    Raises:
      InternalError: the process has opened a server to other machines.
    """
    if find_exposed().keys() - _exposed_before:
        raise _unknown_beam()


class _Grpc:
    """The replacement for the module `grpc` in `worker_handlers`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> Any:
        """Returns a server that ignores the host of an address and listens on the loopback
        interface.
        """
        server: Any = grpc.server(*arguments, **options)
        listen = server.add_insecure_port
        server.add_insecure_port = lambda address: listen(
            f"{LOCALHOST}:{address.rpartition(':')[2]}"
        )
        return server


_LOOPBACK = _Grpc()


def _unknown_beam() -> InternalError:
    return InternalError(
        f"Scopeline cannot restrict the ports that Beam {beam.__version__} opens for its workers to"
        " this machine. Install the version of Beam in uv.lock, or set beam.workers: 1."
    )


class DescribingHarness(SdkHarness):
    """Beam's worker harness, which reports errors in a form that the run can raise again.

    The class overrides the private method by which Beam executes a request and reports an error.
    """

    def __init__(
        self, describe: Callable[[BaseException], str], *arguments: Any, **options: Any
    ) -> None:
        """Creates the harness with Beam's arguments.

        Args:
          describe: a function that returns an error as text for the run.

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
            except BaseException as error:  # A user's code may raise SystemExit.
                traceback.print_exc()
                return beam_fn_api_pb2.InstructionResponse(
                    instruction_id=request.instruction_id, error=self._describe(error)
                )

        super()._execute(attempt, request)
