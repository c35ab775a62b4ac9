"""Rows of datasets: local JSONL, JSON and parquet files, and datasets of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

ENDINGS = (".jsonl", ".json", ".parquet")


def is_file_name(name: str) -> bool:
    """Whether ``data.train`` names a file, not a dataset of the hub."""
    return name.endswith(ENDINGS)


def read_rows(name: str) -> Sequence[Mapping[str, Any]]:
    """The rows of a file: one object a line (JSONL), a list of objects (JSON), or a parquet table.

    Raises:
        ValueError: The file is missing or is not of that form; a line of it is named.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"the dataset {path} is not there; nodes read it under the path that the layout gives")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if path.suffix == ".json":
        rows = _decode(path.read_bytes(), str(path))
        if not isinstance(rows, list):
            raise ValueError(f"{path} is not a list of objects")
        return [_object(row, f"row {number} of {path}") for number, row in enumerate(rows, 1)]
    with path.open("rb") as lines:
        return [
            _object(_decode(line, f"line {number} of {path}"), f"line {number} of {path}")
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]


def _decode(text: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error


def _object(row: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not an object")
    return row


def _read_parquet(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(f"reading {path} takes pyarrow, which is not installed: pip install pyarrow") from error
    rows: list[Mapping[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def read_hub(name: str, subset: str, split: str) -> Sequence[Mapping[str, Any]]:
    """The rows of a dataset of the Hugging Face hub, or of its cache where ``HF_HUB_OFFLINE=1``.

    Raises:
        ValueError: The package ``datasets`` is missing, or the dataset is not in reach.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ValueError(
            f"the dataset {name!r} is of the Hugging Face hub, which takes a package that is not installed: "
            "pip install datasets (a local file must end in .jsonl, .json or .parquet)"
        ) from error
    try:
        rows: Sequence[Mapping[str, Any]] = load_dataset(name, subset or None, split=split)
    except (OSError, ValueError) as error:  # offline, unknown name, unknown subset or split
        raise ValueError(
            f"the dataset {name!r} is not in reach: {error}. On nodes without internet, download it on the login node "
            "into a shared HF_HOME first, or give a local .jsonl or .parquet file"
        ) from error
    return rows
