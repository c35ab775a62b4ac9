"""What a self-test measured of a cluster's cards and links, in place of what ``plan`` assumes of them.

``rltui selftest`` writes it to ``selftests.json`` in the state directory, by cluster and card, and ``plan --cluster C``
reads it. Rates of whole runs are in :mod:`rltui.plan.rates`: a product of matrices says what a card can reach at most,
not what a training run does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.paths import ensure_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "selftests.json"


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One card on one cluster; 0 is what was not measured.

    Attributes:
        matmul: Share of the peak FLOP/s that a large product of matrices reaches: no phase reaches more.
        bandwidth: Share of the memory bandwidth that a copy reaches: no phase reaches more.
        node_bytes_per_s: A card's link to the others of its node, in a collective.
        network_bytes_per_s: A card's link to those of other nodes, in a collective.
        host_bytes_per_s: From host memory to the card, all cards of a node at once.
        source: Run, cluster and day, in words.
    """

    matmul: float = 0.0
    bandwidth: float = 0.0
    node_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0
    host_bytes_per_s: float = 0.0
    source: str = ""


Known = dict[str, dict[str, Measured]]


def read_measured(folder: Path) -> Known:
    """What self-tests measured, by cluster and card; nothing where there is no such file.

    Raises:
        ValueError: The file cannot be read, or does not have that form.
    """
    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Known)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error


def keep_measured(folder: Path, cluster: str, card: str, found: Measured) -> Measured:
    """Write ``found`` down; what it did not measure stays as an earlier self-test has it. Returns what is then known.

    Raises:
        ValueError: The file that is there cannot be read: it would be written anew.
        RltuiError: The folder cannot be written.
    """
    known = read_measured(folder)
    before = known.get(cluster, {}).get(card, Measured())
    numbers = [name for name in Measured.__struct_fields__ if name != "source"]
    older = {name: value for name in numbers if (value := getattr(before, name)) and not getattr(found, name)}
    source = f"{found.source}; {before.source}" if older and before.source not in found.source else found.source
    merged = msgspec.structs.replace(found, **older, source=source)
    known.setdefault(cluster, {})[card] = merged
    try:
        rundir.write_json(str(ensure_private(folder) / FILE), msgspec.to_builtins(known))
    except OSError as error:
        raise RltuiError(f"{folder / FILE} cannot be written: {error.strerror}.") from error
    return merged


def words(found: Measured) -> str:
    """What was measured, where and when, in a line."""
    return f"{', '.join(_numbers(found))} (measured: {found.source})"


def _numbers(found: Measured) -> Iterator[str]:
    if found.bandwidth:
        yield f"at most {found.bandwidth:.0%} of the bandwidth"
    if found.matmul:
        yield f"at most {found.matmul:.0%} of the peak FLOP/s"
    for value, where in (
        (found.node_bytes_per_s, "in a node"),
        (found.network_bytes_per_s, "between nodes"),
        (found.host_bytes_per_s, "from host memory"),
    ):
        if value:
            yield f"{value / 1e9:.3g} GB/s {where}"
