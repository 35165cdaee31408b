"""The variants of a model, as people see them: one table, and why some are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from components.disk import show_size

NONE = "-"


def variants_table(variants: Mapping[str, Any]) -> Table:
    """What each variant is and takes, in 80 columns; `summary.json` has the other figures.

    Args:
      variants: as a run's summary has them.
    """
    metric = variants["metric"]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("variant", no_wrap=True)
    for title in (metric, "drop", "size", "share", "gzipped", "1 row"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("ok", no_wrap=True)
    for variant in variants["variants"]:
        table.add_row(
            variant["name"],
            _show(variant["metrics"].get(metric), ".4f"),
            _show(variant["drop"], "+.2%" if variant.get("drop_is_share") else "+.4f"),
            _size(variant["bytes"]),
            _show(variant["size_ratio"], ".3f"),
            _size(variant["gzipped_bytes"]),
            _time(variant["measured"]),
            _verdict(variant),
        )
    return table


def describe_variants(variants: Mapping[str, Any]) -> list[str]:
    """Why variants are refused, and what else is to be known of them, a line each.

    Args:
      variants: as a run's summary has them.
    """
    lines = []
    for variant in variants.get("variants", []):
        name = escape(variant["name"])
        if not variant["accepted"]:
            lines.append(
                f"[yellow]refused[/yellow] {name}: {escape('; '.join(variant['reasons']))}"
            )
        elif why := variant.get("unmeasured"):
            lines.append(
                f"note: {name}: {escape(why)}, and accepted all the same "
                "(optimize.accept.unmeasured)"
            )
        lines += [f"note: {name}: {escape(remark)}" for remark in variant["remarks"]]
    return lines


def _verdict(variant: Mapping[str, Any]) -> str:
    """Whether it is good enough, which nobody knows where it was not measured."""
    if variant.get("unmeasured"):
        return "[yellow]unmeasured[/yellow]"
    return "[green]yes[/green]" if variant["accepted"] else "[red]no[/red]"


def _show(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _size(value: int | None) -> str:
    return NONE if value is None else show_size(value)


def _time(measured: Mapping[str, Any]) -> str:
    found = measured.get("p50_ms_batch_1")
    return NONE if found is None else f"{found:.3g} ms"
