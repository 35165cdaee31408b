"""The explanation of a model, which the Evaluator stores beside TFMA's files."""

from __future__ import annotations

from pydantic import BaseModel

from components.json_numbers import Number

EXPLANATION_FILE = "explanation.json"
"""The file of an `Explanation` in the folder of the evaluation artifact."""
IMPORTANCES, EFFECTS, EXAMPLES = "importances", "effects of columns", "worst examples"
"""The names of parts in `Explanation.failures`."""
EXAMPLES_FILE = "worst_examples.json"
"""The file of the `WorstExamples`. It contains values of columns, unlike EXPLANATION_FILE."""


class Curve(BaseModel):
    """The points of a curve of one class, in order."""

    label: str
    """The class that counts as positive."""
    x: list[Number]
    y: list[Number]
    area: float | None = None
    thresholds: list[Number] = []
    """The threshold of the prediction at each point, or an empty list if it is not known."""


class Calibration(BaseModel):
    """The observed frequencies of predicted probabilities, in bins of equally many rows."""

    predicted: list[Number]
    """The mean predicted probability of each bin."""
    observed: list[Number]
    low: list[Number]
    high: list[Number]
    """The bounds of the observed frequency: Wilson's interval at 95 %."""
    rows: list[int]
    expected_error: Number
    """The expected calibration error: the mean distance, weighted by rows."""


class Confusion(BaseModel):
    """The counts of true and predicted classes."""

    classes: list[str]
    """The classes with most mistakes; the last is "others" if there are further classes."""
    counts: list[list[Number]]
    """The count by true class (rows) and predicted class (columns)."""


class Bins(BaseModel):
    """A histogram: the counts of values in consecutive bins."""

    edges: list[Number]
    """The bounds of the bins: one more than there are counts."""
    counts: list[Number]


class Residuals(BaseModel):
    """The errors of a regression."""

    errors: Bins
    """The histogram of prediction minus label. The first and the last bin include the 0.5 % of
    smaller and larger errors."""
    predicted: list[Number]
    actual: list[Number]
    """The predictions and labels of up to 500 rows, evenly from all predictions."""


class Importance(BaseModel):
    """The importance of a column: how much worse predictions get if its values are permuted."""

    column: str
    increase: Number
    """The increase of the loss."""
    low: Number
    high: Number
    """The bounds of the increase, at 95 %."""
    share: Number
    """The increase divided by the sum of all positive increases; 0 if it is negative."""


class Effect(BaseModel):
    """The mean prediction by the value of a column, with the other columns unchanged."""

    column: str
    is_numeric: bool
    values: list[float | str | None]
    """The values, in ascending order or most frequent first. None is a missing value."""
    answers: list[Number]
    """The mean prediction by value."""
    low: list[Number]
    high: list[Number]
    """The quartiles of the predictions by value."""
    rows: list[int]
    """The number of rows with (about) each value."""
    output: str = ""
    """The explained prediction in words; of three or more classes the one that changes most. An
    empty string for a number."""


class Explanation(BaseModel):
    """The explanation of a model on a sample of the eval split: what it uses and where it errs."""

    rows: int
    """The number of sampled rows."""
    of: int
    """The number of rows of the eval split."""
    task: str
    """The task, such as `binary`."""
    output: str
    """The explained prediction in words, such as "probability of yes" or "price"."""
    loss: str
    """The name of the loss whose increase the importances measure, such as `log_loss` or `mse`."""
    loss_value: Number
    """The loss on the sample."""
    classes: list[str] = []
    roc: list[Curve] = []
    """False positive rate (x) and true positive rate (y), for up to 10 classes."""
    precision_recall: list[Curve] = []
    """Recall (x) and precision (y), for up to 10 classes."""
    calibration: Calibration | None = None
    confusion: Confusion | None = None
    residuals: Residuals | None = None
    importances: list[Importance] = []
    """The importances, beginning with the largest."""
    effects: list[Effect] = []
    """The effects of the most important columns."""
    suspected_leak: str | None = None
    """The column that alone carries nearly all of the model's knowledge, or None."""
    notes: list[str] = []
    failures: dict[str, str] = {}
    """The parts that could not be computed, each with the error."""
    seconds: float = 0.0


class Share(BaseModel):
    """A column's additive share in a prediction."""

    column: str
    value: str
    """The value of the column, as text of at most 200 characters."""
    share: Number
    """The shares of all columns and the mean prediction add up to the prediction."""


class WorstExample(BaseModel):
    """A row with a large loss."""

    label: str
    prediction: str
    """The predicted class with its probability, or the predicted number."""
    loss: Number
    values: dict[str, str]
    """The values of the columns, as text of at most 200 characters each."""
    images: dict[str, str] = {}
    """The pictures of the row by column: PNG files of at most 160 pixels a side, in base64."""
    saliency: dict[str, str] = {}
    """The strength of each pixel by column: PNG files of the same size, in base64."""
    words: list[tuple[str, Number]] = []
    """The words of a text in order, each with its additive share."""
    shares: list[Share] = []
    """The strongest columns, beginning with the strongest."""
    base: float | None = None
    """The mean prediction to which the shares of the row add up, or None without shares."""


class WorstExamples(BaseModel):
    """The rows of the sample with the largest losses, beginning with the largest."""

    base: float | None = None
    """The mean prediction to which the shares of all rows add up. None without shares, and for
    three or more classes: then each row has a base of its own."""
    rows: list[WorstExample] = []
