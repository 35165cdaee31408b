"""Contracts of import-linter: circles of modules, and what is imported by code that runs."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph, build_graph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application.contract_utils import AlertLevel, remove_ignored_imports
from importlinter.contracts.forbidden import ForbiddenContract


class AcyclicModules(Contract):
    """Keeps the modules of some packages from importing each other in a circle.

    import-linter's own contract for this looks at packages beside each other. Here a registry, in a
    package's `__init__`, may be read by a module that others of the package import.
    """

    packages = fields.ListField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Looks for a circle."""
        del verbose
        remove_ignored_imports(graph, self.ignore_imports, AlertLevel.ERROR)  # type: ignore[arg-type]
        prefixes = tuple(str(package) for package in self.packages)  # type: ignore[attr-defined]
        modules = [name for name in graph.modules if name.split(".")[0] in prefixes]
        sorter = TopologicalSorter(
            {name: graph.find_modules_directly_imported_by(name) for name in modules}
        )
        try:
            sorter.prepare()
        except CycleError as error:
            return ContractCheck(kept=False, metadata={"circle": error.args[1]})
        return ContractCheck(kept=True)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Prints one circle, each module imported by the next."""
        output.print_error(" <- ".join(check.metadata["circle"]))


class ForbiddenAtRunTime(ForbiddenContract):
    """Keeps modules from importing others when they run.

    What stands under `if TYPE_CHECKING` does not count; the packages that Python imports on the way
    to a module do, which import-linter passes over.
    """

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Looks at the imports that Python makes."""
        del graph
        at_run_time = build_graph(
            *self.session_options["root_packages"],
            include_external_packages=True,
            exclude_type_checking_imports=True,
        )
        for imported in sorted(at_run_time.modules):
            for importer in at_run_time.find_modules_that_directly_import(imported):
                for package in _packages(imported):
                    if not f"{importer}.".startswith(f"{package}."):
                        at_run_time.add_import(importer=importer, imported=package)
        return super().check(at_run_time, verbose)


def _packages(module: str) -> Iterator[str]:
    """Yields the packages that a module lies in."""
    while "." in module:
        module = module.rpartition(".")[0]
        yield module
