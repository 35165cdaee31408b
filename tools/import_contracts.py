"""A contract of import-linter: no module imports itself by way of others."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AcyclicModules(Contract):
    """Keeps the modules of some packages from importing each other in a circle.

    import-linter's own contract for this looks at packages beside each other. Here a registry, in a
    package's `__init__`, may be read by a module that others of the package import.
    """

    packages = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Looks for a circle."""
        del verbose
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
