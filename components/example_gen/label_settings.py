"""Where labels are that come later than the rows: free of TensorFlow and TFX."""

from __future__ import annotations

from pydantic import Field

from trainer_module.settings import Settings


class LabelsSettings(Settings):
    """Files of labels."""

    path: str = Field(min_length=1)
    """A file, folder or glob of CSV, JSON lines or Parquet, with a column of the label's name."""
    key: str = Field(min_length=1)
    """The column that is in the data and in these files, such as `request_id` of what `serve
    --log-requests` writes. Of several labels of a key the last one counts."""
