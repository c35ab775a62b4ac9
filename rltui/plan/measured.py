"""What a self-test measured of a cluster's cards and links, in place of what ``plan`` assumes of them.

``rltui selftest`` writes it to ``selftests.json`` in the state directory, by cluster and card, and ``plan --cluster C``
reads it. Rates of whole runs are in :mod:`rltui.plan.rates`: a product of matrices says what a card can reach at most,
not what a training run does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.paths import ensure_private

FILE = "selftests.json"


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One card on one cluster; 0 is what was not measured.

    Attributes:
        matmul: Share of the peak FLOP/s that a large product of matrices reaches: no phase reaches more.
        bandwidth: Share of the memory bandwidth that a copy reaches: no phase reaches more.
        node_bytes_per_s: A card's link to the others of its node, in a collective.
        network_bytes_per_s: A card's link to those of other nodes, in a collective.
        host_bytes_per_s: From host memory to the card, all cards of a node at once.
        sources: Where each number is from, by its name: run, card, cluster and day, in words.
    """

    matmul: float = 0.0
    bandwidth: float = 0.0
    node_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0
    host_bytes_per_s: float = 0.0
    sources: dict[str, str] = {}


NUMBERS = tuple(name for name in Measured.__struct_fields__ if name != "sources")

Known = dict[str, dict[str, Measured]]


Kept = TypeVar("Kept")


def read_kept(path: Path, form: type[Kept]) -> Kept | None:
    """What was written down as JSON of this form; None where there is no such file.

    Raises:
        ValueError: The file cannot be read, or does not have that form.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error


def read_measured(folder: Path) -> Known:
    """What self-tests measured, by cluster and card; nothing where there is no such file.

    Raises:
        ValueError: The file cannot be read, or does not have that form.
    """
    return read_kept(folder / FILE, Known) or {}


def keep_measured(folder: Path, cluster: str, card: str, numbers: dict[str, float], source: str) -> Measured:
    """Write down the ``numbers`` that ``source`` measured; the others stay. Returns what is then known.

    Raises:
        ValueError: The file that is there cannot be read: it would be written anew.
        RltuiError: The folder cannot be written.
    """
    known = read_measured(folder)
    before = known.get(cluster, {}).get(card, Measured())
    sources = before.sources | dict.fromkeys(numbers, source)
    merged = msgspec.structs.replace(before, **numbers, sources=sources)
    known.setdefault(cluster, {})[card] = merged
    try:
        rundir.write_json(str(ensure_private(folder) / FILE), msgspec.to_builtins(known))
    except OSError as error:
        raise RltuiError(f"{folder / FILE} cannot be written: {error.strerror}.") from error
    return merged


def words(found: Measured) -> str:
    """What was measured, where and when, in a line."""
    by_source: dict[str, list[str]] = {}
    for name in NUMBERS:
        if getattr(found, name):
            by_source.setdefault(found.sources.get(name, ""), []).append(_said(name, getattr(found, name)))
    return "; ".join(f"{', '.join(said)} (measured: {source})" for source, said in by_source.items())


def _said(name: str, value: float) -> str:
    shares = {"matmul": "peak FLOP/s", "bandwidth": "bandwidth"}
    if name in shares:
        return f"at most {value:.0%} of the {shares[name]}"
    where = {"node_bytes_per_s": "in a node", "network_bytes_per_s": "between nodes"}
    return f"{value / 1e9:.3g} GB/s {where.get(name, 'from host memory')}"
