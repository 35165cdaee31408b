"""Contracts of import-linter: no cycles of modules, and no forbidden imports at run time."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph, build_graph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application.contract_utils import AlertLevel, remove_ignored_imports
from importlinter.contracts.forbidden import ForbiddenContract


class AcyclicModules(Contract):
    """A contract that forbids import cycles between the modules of some packages.

    import-linter's own contract compares sibling packages. In this project, a module may read the
    registry in its package's `__init__`, and other modules of the package may import this module.
    """

    packages = fields.ListField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Searches for an import cycle."""
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
        """Prints a cycle; each module is imported by the next module."""
        output.print_error(" <- ".join(check.metadata["circle"]))


class ForbiddenAtRunTime(ForbiddenContract):
    """A contract that forbids imports at run time.

    Imports under `if TYPE_CHECKING` are ignored. The parent packages of an imported module count as
    imported, because Python imports them as well; import-linter's own contract ignores them.
    """

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Checks the imports that Python executes at run time."""
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
    """Yields the packages that contain a module."""
    while "." in module:
        module = module.rpartition(".")[0]
        yield module
