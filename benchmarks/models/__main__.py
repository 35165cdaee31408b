"""Models of tables beside those of other libraries, on the same splits; `make bench-peers`.

Each table is split into 64 % for training, 16 % for Scopeline's eval split and 20 % for the scores.
A seed determines the split and the models. Each model runs in a process of its own, on two cores.
Each result is a file, so that a later run resumes an interrupted one.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Threads that spin while they wait take seconds from each other on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from benchmarks.models.environments import ROOT
from benchmarks.models.job import CORES
from benchmarks.models.report import COSTS, Result, as_json, as_markdown, summarize
from benchmarks.models.running import PEERS, is_ours, run_model, score
from benchmarks.models.splitting import split
from benchmarks.models.tables import TABLES, Table

OURS = ("auto", "tabular", "trees", "tuned")
FOR_TEXTS = ("words", "characters")
"""The peers for tables with sentences."""
NOT_FOR_TEXTS = ("linear", "boosting", "ydf", "trees")
"""The models for tables with other columns than sentences."""
TIMED = ("tuned", "autogluon")
"""The models that are trained until a time is over."""


@dataclass(frozen=True)
class Plan:
    """The tables, models and limits that the options specify."""

    tables: list[Table]
    seeds: int
    models: list[str]
    seconds: int
    peers_get_all: bool
    results: Path

    def paths(self, table: Table, seed: int) -> Iterator[tuple[str, Path]]:
        """Yields the models that suit a table, and the files of their results."""
        for model in self.models:
            suits = table.texts if model in FOR_TEXTS else not table.has_only_texts
            if suits or model not in (*FOR_TEXTS, *NOT_FOR_TEXTS):
                yield model, self.results / table.name / f"seed-{seed}" / self._file_name(model)

    def _file_name(self, model: str) -> str:
        seconds = f"-{self.seconds}s" if model in TIMED else ""
        rows = "-all-rows" if self.peers_get_all and not is_ours(model) else ""
        return f"{model}{seconds}{rows}.json"

    def splits(self) -> Iterator[tuple[Table, int]]:
        """Yields each table with each seed."""
        yield from ((table, seed) for table in self.tables for seed in range(1, self.seeds + 1))

    def results_so_far(self) -> list[Result]:
        """Returns the results that exist."""
        paths = (path for given in self.splits() for _, path in self.paths(*given))
        return [Result.load(path) for path in paths if path.exists()]


def run(plan: Plan, again: bool) -> None:
    """Measures the models that have no result, or all models again."""
    for table, seed in plan.splits():
        missing = [(m, path) for m, path in plan.paths(table, seed) if again or not path.exists()]
        if not missing:
            continue
        rows = table.rows()
        with tempfile.TemporaryDirectory(prefix="scopeline-") as folder:
            job = split(table, rows, seed, Path(folder), plan.seconds, plan.peers_get_all)
            for model, path in missing:
                result = Result(table.name, len(rows), job.task, seed, model)
                try:
                    found = run_model(job, model)
                except RuntimeError as error:
                    result = replace(result, error=str(error))
                else:
                    best, mae = score(job, found)
                    costs = {name: getattr(found, name) for name in COSTS}
                    result = replace(result, score=best, mae=mae, costs=costs, notes=found.notes)
                result.save(path)
                print(result.line(), flush=True)


def main() -> None:
    """Measures what the options specify, and prints the scores, the costs and the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=len(TABLES), help="the number of tables")
    parser.add_argument("--only", nargs="*", help="the names of the tables")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--models",
        nargs="*",
        default=[*PEERS, "autogluon", *OURS],
        help="peers (`ludwig` too, 6 GB), kinds of models, `auto` for the default kind, `tuned`",
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="the time limit of `tuned` and AutoGluon"
    )
    parser.add_argument(
        "--peers-get-all", action="store_true", help="train the peers on the eval split too"
    )
    parser.add_argument("--again", action="store_true", help="measure models with a result again")
    parser.add_argument("--report", action="store_true", help="print the results so far")
    parser.add_argument("--results", type=Path, default=ROOT / "output" / "bench-peers")
    parser.add_argument("--json", type=Path, help="a file for the medians and the verdicts")
    options = parser.parse_args()
    tables = list(TABLES[: options.tables])
    if options.only:
        tables = [table for table in TABLES if table.name in options.only]
    given = options.seeds, options.models, options.seconds, options.peers_get_all
    plan = Plan(tables, *given, options.results)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # noqa: TID251
    if not options.report:
        run(plan, options.again)
    summaries = summarize(plan.results_so_far())
    ours = [model for model in options.models if is_ours(model)]
    print(as_markdown(summaries, ours))
    if options.json:
        options.json.write_text(json.dumps(as_json(summaries, ours), indent=1))


if __name__ == "__main__":
    main()
