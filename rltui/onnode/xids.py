"""NVIDIA's Xid numbers by what they speak of (https://docs.nvidia.com/deploy/xid-errors/)."""

import re

OFF_THE_BUS = frozenset({79})
FIRMWARE = frozenset({119, 120})
MEMORY = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})
NVLINK = frozenset({74, 137, 155, *range(144, 151)})
PROGRAM = frozenset({8, 13, 31, 32, 43, 68, 69, 109})
"""A kernel's illegal access: the program, a library or the driver, not the node."""

NEWS = frozenset({63, 94})
"""Recorded for repair (63) or contained in one process (94): the node may go on."""
HALTED = frozenset({61, 62})
"""The GPU's micro-controller halted: a cause where nothing came before, else a consequence."""
FOLLOWING = frozenset({45, 154})
"""45: channels torn down after another error. 154: what the driver now wants done."""

_XID = re.compile(r"Xid \(?(?:PCI:)?[0-9A-Fa-f:.]+\)?: (\d+)")


def hardware_reason(text: str) -> str:
    """Which reason (``bad_nodes.TIME_TO_LIVE_S``) an Xid's line gives to call its node bad; empty: none."""
    match = _XID.search(text)
    if match is None or re.search(r"(?i)non-?fatal", text):
        return ""
    number = int(match.group(1))
    if number in OFF_THE_BUS:
        return "gpu-lost"
    if number in MEMORY - NEWS:
        return "ecc"
    return "xid" if number in FIRMWARE | NVLINK | HALTED else ""
