"""Reads units of Parquet files: runs of rows of a row group."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from trainer import hub
from trainer.data.kept import of_disk, of_hub
from trainer.data.text import what_to_set, without_nul
from trainer.data.units import ROWS, Unit, parquet_source, raise_passing
from trainer.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


def units(path: str, groups: Sequence[int], files: int, least: int) -> list[Unit]:
    if not sum(groups):
        raise ConfigError(f"{path} has no rows; remove the file, or fill it.")
    # A row group is decoded as a whole. It is cut into runs of rows only if a small corpus would
    # otherwise have too few units to split.
    pieces = max(1, least // max(1, files * len(groups)))
    units: list[Unit] = []
    for index, rows in enumerate(groups):
        length = max(1, -(-rows // pieces))
        units.extend(Unit(path, at, min(at + length, rows), index) for at in range(0, rows, length))
    return units


def row_groups(path: str) -> list[int]:
    """Return the number of rows of each row group."""
    return _row_groups_of_hub(path) if hub.is_hub(path) else _read_footer(path)


@functools.cache
def _row_groups_of_hub(path: str) -> list[int]:
    return _read_footer(path)


def _read_footer(path: str) -> list[int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with parquet_source(path) as source:
            metadata = pq.read_metadata(source)
    except (OSError, pa.ArrowException) as error:
        raise_passing(error)
        raise ConfigError(f"{path} is not a Parquet file: {_cause(error)}; write it again.") from error
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def texts(unit: Unit, field: str) -> Iterator[str]:
    column = group(unit.path, unit.row_group, field).column(0)
    for row in range(unit.start, unit.stop):
        try:
            text = column[row].as_py()
            text = text.decode() if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{unit.path}: row {row} of row group {unit.row_group} is not UTF-8 text; convert the file."
            ) from error
        if text is not None:
            yield without_nul(text)


def objects(unit: Unit) -> list[dict[str, Any]]:
    """Return the rows of a unit, with all columns but those of dates and times.

    The objects in it have no nulls: a file has each key that any of its rows has, so the arguments of one tool would
    have the keys of all others.
    """
    table = group(unit.path, unit.row_group, ROWS)
    try:
        return cast(list[dict[str, Any]], _present(table.slice(unit.start, unit.stop - unit.start).to_pylist()))
    except (ValueError, OverflowError, LookupError) as error:  # also a nested date that Python cannot have
        raise ConfigError(f"Cannot read {unit.path}: {_cause(error)}; write it again.") from error


def _cause(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _present(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_present(item) for item in value]
    return without_nul(value) if isinstance(value, str) else value


def group(path: str, row_group: int, field: str) -> pa.Table:
    """Return a row group: the column of a field, or all columns (ROWS)."""
    kept = of_hub if hub.is_hub(path) else of_disk
    return kept.get((path, row_group, field), lambda: _read_parquet(path, row_group, field))


def _read_parquet(path: str, row_group: int, field: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import types

    try:
        with parquet_source(path) as source, pq.ParquetFile(source) as file:
            if field == ROWS:
                names = file.schema_arrow.names
                if twice := next((name for name in names if names.count(name) > 1), None):
                    raise ConfigError(f'{path} has two columns "{twice}"; rename or remove one.')
                columns = [column.name for column in file.schema_arrow if not types.is_temporal(column.type)]
                return file.read_row_group(row_group, columns=columns)
            if (found := file.schema_arrow.names.count(field)) != 1:
                have = "two columns" if found else "no column"
                names = ", ".join(file.schema_arrow.names)
                todo = what_to_set(file.schema_arrow.names)
                raise ConfigError(f'{path} has {have} "{field}" (it has {names}); {todo}.')
            kind = file.schema_arrow.field(field).type
            text = kind.value_type if pa.types.is_dictionary(kind) else kind
            # Polars and pandas write a column without any text as one of nulls.
            strings = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
            # Impala and old versions of Spark write text without its type.
            binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
            if not any(is_text(text) for is_text in (*strings, *binary)):
                todo = what_to_set(file.schema_arrow.names)
                raise ConfigError(f'{path}: the column "{field}" has the type {kind}, not text; {todo}.')
            return file.read_row_group(row_group, columns=[field])
    except (OSError, pa.ArrowException) as error:
        raise_passing(error)
        raise ConfigError(f"Cannot read {path}: {_cause(error)}; write it again.") from error
