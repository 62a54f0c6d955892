"""An evaluation log as a Parquet table, for whoever analyses scores elsewhere; it is read back as it was written.

Columns ``coalition`` (list of names), ``task``, ``seed`` and ``score``, one evaluation a row; the header of the log
stands in the table's metadata. A log that is being written stays in JSON Lines, to which lines can be added safely.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from macredit.episode import write_atomically
from macredit.errors import UserError, missing_extra
from macredit.values.log import Log, header_of, line_of

COLUMNS = ("coalition", "task", "seed", "score")
HEADER = b"macredit"
"""Under this key the table's metadata holds the log's header as JSON."""


def check_export(path: Path) -> None:
    """Refuses at once what could only fail after everything is scored.

    Raises:
        UserError: another form than .parquet, or pyarrow is missing.
    """
    if path.suffix.lower() != ".parquet":
        raise UserError(f"{path}: cannot be exported in this form; expected a name that ends in .parquet")
    _pyarrow()


def write_parquet(log: Log, path: str | os.PathLike[str]) -> None:
    """Write a log as a table, whole or not at all.

    Raises:
        UserError: a seed does not fit 64 bits, or pyarrow is missing.
        OutsideError: the file cannot be written.
    """
    pyarrow, parquet = _pyarrow()
    kinds = (pyarrow.list_(pyarrow.string()), pyarrow.int64(), pyarrow.int64(), pyarrow.float64())
    rows: list[tuple[Any, ...]] = [(*question, score) for question, score in log.answers.items()]
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)), metadata={HEADER: line_of(header_of(log))})
    try:
        table = pyarrow.table([[row[i] for row in rows] for i in range(len(COLUMNS))], schema=schema)
    except (pyarrow.ArrowInvalid, OverflowError):
        raise UserError(f"{path}: a seed of the log does not fit 64 bits, as a Parquet column's numbers must") from None
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    write_atomically(path, buffer.getvalue())


def lines_of_parquet(path: Path) -> list[bytes]:
    """The lines of the log that a table was written from; not checked yet.

    Raises:
        UserError: the file is missing, no Parquet, or no log, or pyarrow is missing.
    """
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not Parquet ({str(error).partition('.')[0]}); expected an evaluation log") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); expected an evaluation log") from None
    header = (table.schema.metadata or {}).get(HEADER)
    if header is None or set(table.column_names) != set(COLUMNS):
        given = ", ".join(table.column_names)[:60]
        raise UserError(f"{path}: a table of {given} that is no log; expected one written by write_parquet or --export")
    try:
        return [header, *map(line_of, table.to_pylist())]
    except TypeError as error:
        raise UserError(f"{path}: {error}; expected columns of an evaluation log, whose scores are numbers") from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise missing_extra("pyarrow", "tables") from None
    return pyarrow, parquet
