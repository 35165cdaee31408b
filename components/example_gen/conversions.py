"""The commands that convert files of kinds that ExampleGen does not read."""

from __future__ import annotations

import json
import posixpath
import shlex

ONE_OBJECT = "one JSON object"
_ROWS = (
    "if a key contains the rows, write them by `jq -c '.KEY[]' {file} > rows.jsonl`; if each key is"
    " a column, write a table by `{columns}`"
)
_ZIP = "a zip archive, or an Excel workbook"
_ZIP_KINDS = {
    ".xlsx": "an Excel workbook",
    ".xlsm": "an Excel workbook",
    ".npz": "a file of NumPy arrays",
    ".zip": "a zip archive",
}
"""The kinds of zip archives by the endings of their names."""
_SHEET = "save its sheet as CSV, for example by `soffice --headless --convert-to csv {file}`"
_COLUMNS = "write its arrays as columns of a CSV, for example by numpy.savetxt"
_REMEDIES = {
    "an Excel workbook": _SHEET,
    "an old Excel workbook": _SHEET,
    _ZIP: f"unzip an archive by `unzip {{file}}`, and name a file in it; of a workbook, {_SHEET}",
    "a zip archive": "unzip it by `unzip {file}`, and name a file or folder in it",
    "gzipped, without the ending .gz": "rename it by `mv {file} {file}.gz`",
    "compressed by bzip2": "decompress it by `bunzip2 -k {file}`",
    "compressed by Zstandard": "decompress it by `zstd -d {file}`",
    "compressed by xz": "decompress it by `xz -dk {file}`",
    "an Arrow file": "write it as Parquet by `{arrow}`",
    "an Arrow stream": "write it as Parquet by `{stream}`",
    "an ORC file": "write it as Parquet by `{orc}`",
    "a Python pickle": "if you trust it, write it as Parquet by `{pickle}`",
    "an SQLite database": (
        "export a table by `sqlite3 -header -csv {file} 'SELECT * FROM name' > table.csv`; `sqlite3"
        " {file} .tables` lists the names"
    ),
    "a NumPy array": "write an array of rows as CSV by `{numpy}`",
    "a file of NumPy arrays": _COLUMNS,
    "a MATLAB file": f"read it by scipy.io.loadmat, and {_COLUMNS}",
    "an HTML page": "download the data itself, or export the table of the page as CSV",
    "a pointer of Git LFS, without the file itself": "fetch the file by `git lfs pull`",
    "a JSON array": "write one object per line by `jq -c '.[]' {file} > rows.jsonl`",
    ONE_OBJECT: _ROWS,
    "a JSON object in several lines": f"write one object per line by `jq -c . {{file}}`; {_ROWS}",
    "an ARFF file": (
        "write its rows as CSV by `sed '1,/^@data/Id' {file} > table.csv`, and the names of its"
        " attributes into data.csv.header"
    ),
    "a LIBSVM file": "write it as CSV, for example by sklearn.datasets.load_svmlight_file",
    "a file of macOS without data": "name the file without ._ in its name",
}
_CODE = {
    "columns": "import pandas; pandas.read_json({file}).to_csv({csv}, index=False)",
    "arrow": "import pandas; pandas.read_feather({file}).to_parquet({parquet})",
    "stream": (
        "import pyarrow as pa, pyarrow.parquet as pq;"
        " pq.write_table(pa.ipc.open_stream(pa.OSFile({file})).read_all(), {parquet})"
    ),
    "orc": "import pandas; pandas.read_orc({file}).to_parquet({parquet})",
    "pickle": "import pandas; pandas.read_pickle({file}).to_parquet({parquet})",
    "numpy": 'import numpy as np; np.savetxt({csv}, np.load({file}), fmt="%.9g", delimiter=",")',
}
"""The Python code of conversions."""


def kind_by_name(kind: str, file: str) -> str:
    """Returns the kind of a file; the ending of its name distinguishes the kinds of zip archives.

    Args:
      kind: the kind by the first bytes, or an empty string.
    """
    ending = posixpath.splitext(file)[1].lower()
    return _ZIP_KINDS.get(ending, kind) if kind == _ZIP else kind


def remedy(kind: str, file: str, expected: str = "CSV") -> str:
    """Returns what to do with a file of a kind that cannot be read, for a message.

    Args:
      kind: the kind, by `kind_by_name`.
    """
    root = posixpath.splitext(file)[0]
    names = {"file": file, "parquet": f"{root}.parquet", "csv": f"{root}.csv"}
    quoted = {key: json.dumps(name, ensure_ascii=False) for key, name in names.items()}
    commands = {key: python_command(code.format(**quoted)) for key, code in _CODE.items()}
    text = _REMEDIES.get(kind, f"export it as {expected}")
    return text.format(file=shlex.quote(file), **commands)


def python_command(code: str) -> str:
    """Returns the command line that runs Python code."""
    return f"python -c {shlex.quote(code)}"
