"""torch's flight recorder: where a process leaves its record of collectives, and how such a record is read.

torch (NCCL since 2.2, gloo since 2.7) keeps the newest collectives of a process in memory and pickles them into the
file ``TORCH_FR_DUMP_TEMP_FILE`` + rank when one times out. A pickle is a program: the reader here knows only the words
that make plain data, so it can neither name nor call anything, whoever wrote the file.
"""

import json
import os
import pickle
import re
from io import BytesIO
from typing import Any, ClassVar, Dict, Optional, Tuple

from rltui.onnode import rundir

MOST_BYTES = 1 << 25
MAGIC = b"\x80\x02}"
"""A pickle of torch's own writer that holds a dict."""

_NAME = re.compile(
    r"(?P<set>.*(?:nccl|fr_|gloo|flight|trace).*?)(?P<rank>\d{1,7})(?:\.json|\.pkl|\.pickle|\.bin)?\Z", re.I
)

_LIVE = re.compile(r"nccl_trace_(?P<request>\d{13,})_rank_\d+\.json\Z")

_PLAIN = (
    "PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MEMOIZE", "FRAME",
)  # fmt: skip
"""Words of a pickle that make numbers, texts, lists, tuples and dicts, and nothing else."""


class _PlainUnpickler(pickle._Unpickler):
    """Reads plain data only. In Python, as that of C makes room for as many places as a file claims to need."""

    dispatch: ClassVar[Any] = {
        ord(getattr(pickle, name)): pickle._Unpickler.dispatch[ord(getattr(pickle, name))] for name in _PLAIN
    }

    def find_class(self, module: str, name: str) -> Any:
        """Refuse: no word that is known here asks for it."""
        raise pickle.UnpicklingError("%s.%s is no plain data" % (module, name))


def variables(folder: str) -> Dict[str, str]:
    """Variables that make torch keep its record, and write it into ``folder`` when a collective times out.

    Only these names: torch that is too old for them warns of nothing, and newer torch warns of the older names. Its
    pipes for a dump at any time are left out: torch ends a process whose pipe it cannot make, or makes twice.
    """
    return {"TORCH_FR_BUFFER_SIZE": "2000", rundir.FLIGHT_RECORD_VARIABLE: os.path.join(folder, rundir.FLIGHT_RECORD)}


def live_name(request: str, rank: int) -> str:
    """The file of a rank's record that was taken for the request ``request`` of evidence, while the rank lived."""
    return "%s%s_rank_%d.json" % (rundir.FLIGHT_RECORD[: -len("rank_")], request, rank)


def request_of(name: str) -> str:
    """The request for which a file's record was taken; empty: torch left it as a collective failed."""
    match = _LIVE.match(os.path.basename(name))
    return match.group("request") if match else ""


def named(path: str) -> Optional[Tuple[str, int]]:
    """Which files belong together, and the rank, by a file's name; None for one that is no record by its name."""
    folder, name = os.path.split(path)
    match = _NAME.match(name)
    return (os.path.join(folder, match.group("set")), int(match.group("rank"))) if match else None


def is_record(path: str, beginning: bytes) -> bool:
    """Whether a file is a record, by its first bytes, and where those are of JSON or another pickle by its name."""
    return beginning.startswith(MAGIC) or (beginning.startswith((b"\x80", b"{")) and named(path) is not None)


def read(data: bytes) -> Dict[str, Any]:
    """The content of a record, as torch writes it (a pickle) or as ``torch`` and ``rltui bundle`` say it in JSON.

    Raises:
        ValueError: It is none, is cut off, or is more than plain data.
    """
    if len(data) > MOST_BYTES:
        raise ValueError("it is larger than %d MiB" % (MOST_BYTES >> 20))
    try:
        found = _PlainUnpickler(BytesIO(data)).load() if data.startswith(b"\x80") else json.loads(data)
    except KeyError as error:
        # the unpickler looks each opcode up in its table, which has only those of plain data
        raise ValueError("it holds more than plain data") from error
    except Exception as error:
        raise ValueError("it cannot be read: %s" % (error or type(error).__name__)) from error
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise ValueError("it is no record of collectives")
    return found
