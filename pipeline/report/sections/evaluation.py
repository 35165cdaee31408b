"""The section about mistakes: confusions, curves, calibration, residuals and the worst examples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from components.evaluator.explanation.record import (
    EFFECTS,
    EXAMPLES,
    IMPORTANCES,
    Calibration,
    Confusion,
    Curve,
    Explanation,
    Residuals,
    Share,
    WorstExample,
    WorstExamples,
)
from pipeline.report import charts
from pipeline.report.blocks import (
    Block,
    Cell,
    Columns,
    Example,
    Examples,
    Figure,
    Items,
    Note,
    Picture,
    Section,
    Table,
)
from pipeline.report.source import ReportSource
from pipeline.report.text import alike, interval, is_number, listed, number, shorten
from trainer_module.errors import counted

MAX_CLASSES = 15
"""The maximum number of classes in the confusion matrix."""
MAX_CURVES = 6
MAX_POINTS = 100
"""The maximum number of points of a curve; of more, evenly spaced points are drawn."""
MAX_EXAMPLES = 20
MAX_SHARES = 6
MAX_UNFOLDED = 3
"""The maximum number of values of an example without shares that are not folded."""
MAX_WORDS = 200
MAX_PICTURES = 1_000_000
"""The maximum size of all pictures in base64; the pictures of further rows are left out."""


def make_evaluation(source: ReportSource) -> Section | None:
    """Returns the section of mistakes, or None if the Evaluator left no explanation."""
    blocks: list[Block] = []
    lead = ""
    if (explanation := source.details.explanation) is not None:
        lead = _lead(explanation)
        figures = list(_figures(explanation))
        if figures:
            blocks.append(Columns(figures))
        if explanation.confusion is not None and explanation.confusion.classes:
            blocks += _confusion(explanation.confusion)
        usage = (IMPORTANCES, EFFECTS)
        blocks += [note for part, note in failures(explanation).items() if part not in usage]
        if explanation.notes:
            blocks.append(Items.capped("Notes on the evaluation", explanation.notes))
    if worst := _worst(source):
        blocks.append(worst)
    elif explanation is not None and EXAMPLES not in explanation.failures:
        blocks.append(Note("The file of worst examples does not exist (any more).", "muted"))
    return Section("evaluation", "Evaluation", blocks, lead) if blocks else None


def failures(explanation: Explanation) -> dict[str, Note]:
    """Returns a note for each part of an explanation that was not computed."""
    return {
        part: Note(f"{part}: not computed: {shorten(reason, 400)}", "warn")
        for part, reason in explanation.failures.items()
    }


def _lead(explanation: Explanation) -> str:
    part = "all" if explanation.rows == explanation.of else f"{explanation.rows:,} of"
    extent = f"{part} {explanation.of:,} rows of the eval split"
    loss = f"{explanation.loss} {number(explanation.loss_value)}"
    return f"On {extent}, the model has {loss}."


def _figures(explanation: Explanation) -> Iterator[Figure]:
    if explanation.roc:
        axes = ("false positive rate", "true positive rate")
        yield _curves("ROC", explanation.roc, axes, has_diagonal=True)
    if explanation.precision_recall:
        axes = ("recall", "precision")
        yield _curves("Precision and recall", explanation.precision_recall, axes)
    if explanation.calibration is not None and explanation.calibration.predicted:
        yield _calibration(explanation.calibration)
    if explanation.residuals is not None:
        yield from _residuals(explanation.residuals)


def _curves(
    title: str, curves: Sequence[Curve], axes: tuple[str, str], *, has_diagonal: bool = False
) -> Figure:
    # The classes that the model separates worst come first.
    ranked = sorted(curves, key=lambda curve: 1.0 if curve.area is None else curve.area)
    rows, names = [], []
    for curve in ranked[:MAX_CURVES]:
        area = f" ({number(curve.area)})" if curve.area is not None else ""
        names.append(f"{shorten(curve.label, 24)}{area}")
        points = [(x, y) for x, y in zip(curve.x, curve.y, strict=False) if is_number(x + y)]
        step = max(1, -(-len(points) // MAX_POINTS))
        # The last point belongs to the curve.
        kept = points[:-1:step] + points[-1:]
        rows += [{"x": x, "y": y, "series": names[-1]} for x, y in kept]
    svg = charts.lines(rows, *axes, names, is_curve=True, has_diagonal=has_diagonal)
    note = f"Class, with the area under the curve: {', '.join(names)}."
    if len(curves) > 1:
        note = f"The legend has the areas under the curves; {len(names)} of {len(curves)} classes."
    return Figure(title, f"{title}: {', '.join(names)}", svg, note=note)


def _calibration(calibration: Calibration) -> Figure:
    columns = (calibration.predicted, calibration.observed, calibration.low, calibration.high)
    rows = [
        {"x": x, "y": y, "low": low, "high": high}
        for x, y, low, high in zip(*columns, strict=False)
    ]
    distance = calibration.expected_error
    shown = f"{distance:.2g}" if is_number(distance) else "not known"
    error = f"The expected calibration error is {shown}."
    table = Table.capped(
        "Figures of the calibration",
        ["predicted", "observed", "interval", "rows"],
        [
            [number(x), number(y), interval((low, high)), f"{count:,}"]
            for x, y, low, high, count in zip(*columns, calibration.rows, strict=False)
        ],
        is_folded=True,
    )
    note = f"{error} Points on the diagonal are predictions that are as frequent as they claim."
    return Figure("Calibration", f"Calibration. {error}", charts.calibration(rows), table, note)


def _residuals(residuals: Residuals) -> Iterator[Figure]:
    edges, counts = residuals.errors.edges, residuals.errors.counts
    if counts:
        bars = [
            {"left": left, "right": right, "count": count}
            for left, right, count in zip(edges, edges[1:], counts, strict=False)
        ]
        message = f"Errors from {number(edges[0])} to {number(edges[-1])}"
        svg = charts.histogram(bars, "prediction minus label", "rows")
        note = "The first and the last bar contain all errors beyond them."
        yield Figure("Errors", f"{message}; most frequent {_mode(bars)}.", svg, note=note)
    pairs = zip(residuals.actual, residuals.predicted, strict=False)
    points = [{"x": x, "y": y} for x, y in pairs if is_number(x) and is_number(y)]
    if points:
        message = f"{counted(len(points), 'row')}; points on the diagonal are exact predictions."
        svg = charts.scatter(points, "label", "prediction")
        yield Figure("Predictions and labels", message, svg, note=message)


def _mode(bars: Sequence[dict[str, float]]) -> str:
    highest = max(bars, key=lambda bar: bar["count"])
    return f"{number(highest['left'])} to {number(highest['right'])}"


def _confusion(confusion: Confusion) -> list[Block]:
    """Returns the confusion matrix as a table, and its most frequent mistakes in a sentence."""
    classes = confusion.classes[:MAX_CLASSES]
    rows: list[list[str | Cell]] = []
    for label, counts in zip(classes, confusion.counts, strict=False):
        total = sum(counts) or 1.0
        cells = [
            Cell(
                number(count),
                "" if count else "muted",
                heat=round(count / total, 3) if is_number(count / total) else 0.0,
            )
            for count in counts[: len(classes)]
        ]
        rows.append([shorten(label, 40), *cells])
    head = ["label \\ prediction", *(shorten(label, 24) for label in classes)]
    mistakes = [
        (count, label, prediction)
        for label, counts in zip(confusion.classes, confusion.counts, strict=False)
        for prediction, count in zip(confusion.classes, counts, strict=False)
        if prediction != label and count > 0
    ]
    mistakes.sort(reverse=True)
    table = Table.capped("Confusion matrix: rows by label and prediction", head, rows)
    if not mistakes:
        return [table]
    gist = listed(
        (f"{shorten(a, 24)} predicted as {shorten(b, 24)} ({n:,.0f})" for n, a, b in mistakes), 3
    )
    return [table, Note(f"Most frequent mistakes: {gist}.", "muted")]


def _worst(source: ReportSource) -> Examples | None:
    worst = source.worst_examples
    if worst is None or not worst.rows:
        return None
    has_words = not (_texts(source) & source.hidden)
    examples, room = [], MAX_PICTURES
    for row in worst.rows[:MAX_EXAMPLES]:
        pictures = _pictures(row, source.hidden)
        room -= sum(len(picture.png) for picture in pictures)
        examples.append(_example(row, source, pictures if room > 0 else [], has_words))
    note = "The rows with the largest losses, each with its label → its prediction. Ignored and "
    note += "private columns are left out."
    if any(row.shares for row in worst.rows):
        mean = f", {number(worst.base)}," if worst.base is not None else ""
        note += f" The mean prediction{mean} and the shares of all columns add up to "
        note += f"{_explained(source, worst)}."
    return Examples("Worst examples", examples, note)


def _explained(source: ReportSource, worst: WorstExamples) -> str:
    """Returns what the shares of a row add up to; a title has the probability of its own class."""
    output = "" if source.details.explanation is None else source.details.explanation.output
    # Rows of three or more classes have a base each, of the class in their titles.
    is_of_one_class = worst.base is not None and output.startswith("probability of ")
    return f"the {shorten(output, 60)}" if is_of_one_class else "a prediction"


def _texts(source: ReportSource) -> set[str]:
    """Returns the columns of text, from which the words of an example may come.

    The details lack columns if there are very many, or if the statistics cannot be read.
    """
    types = {name: column.settings.get("type") for name, column in source.summary.columns.items()}
    declared = source.setting("features")
    for name, feature in declared.items() if isinstance(declared, Mapping) else ():
        types[name] = feature.get("type") if isinstance(feature, Mapping) else feature
    types |= {column.name: column.type for column in source.details.columns}
    return {name for name, kind in types.items() if kind == "text"}


def _pictures(row: WorstExample, hidden: Collection[str]) -> list[Picture]:
    pictures = []
    for name, png in row.images.items():
        if name in hidden:
            continue
        label, prediction = shorten(row.label, 40), shorten(row.prediction, 40)
        alt = f"{shorten(name, 40)}: label {label}, prediction {prediction}"
        pictures.append(Picture(alt, png))
        if saliency := row.saliency.get(name):
            pictures.append(Picture(f"{shorten(name, 40)}: the pixels that matter", saliency))
    return pictures


def _pair(share: Share, row: WorstExample) -> str:
    """Returns a column with its value; a share of several columns together has no value."""
    name, value = shorten(share.column, 40), shorten(share.value, 40)
    return f"{name} = {value or 'missing'}" if share.column in row.values else name


def _example(
    row: WorstExample, source: ReportSource, pictures: Sequence[Picture], has_words: bool
) -> Example:
    known = [(shorten(word, 40), share) for word, share in row.words if is_number(share)]
    largest = max((abs(share) for _, share in known), default=0.0) or 1.0
    words = [(word, share / largest) for word, share in known[:MAX_WORDS]] if has_words else []
    shown = [one for one in row.shares if one.column not in source.hidden][:MAX_SHARES]
    largest_share = max((abs(one.share) for one in shown), default=0.0)
    figures = alike([one.share for one in shown], largest_share, "+")
    shares = [[_pair(one, row), figure] for one, figure in zip(shown, figures, strict=True)]
    values = [
        [shorten(name, 40), shorten(value)]
        for name, value in row.values.items()
        if name not in source.hidden and name not in row.images
    ]
    # The note above the rows has the base of all rows.
    worst = source.worst_examples
    is_in_note = worst is not None and worst.base is not None
    base = "" if row.base is None or is_in_note else f"mean prediction {number(row.base)}"
    is_folded = bool(shares or words) or len(values) > MAX_UNFOLDED
    table = Table.capped("Values", ["column", "value"], values, 2, is_folded=is_folded, limit=30)
    return Example(
        title=f"{shorten(row.label, 60)} → {shorten(row.prediction, 80)}",
        detail=", ".join(filter(None, (f"loss {number(row.loss)}", base))),
        pictures=pictures,
        words=words,
        shares=Table.capped("Shares", ["column = value", "share"], shares) if shares else None,
        values=table if values else None,
    )
