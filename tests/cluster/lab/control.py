"""Requests to the process that keeps a lab (see serve.py)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from .spec import LabError

REQUEST_DEADLINE_S = 900.0


def ask(folder: str | Path, do: str, **values: Any) -> Any:
    """Send a request to the keeper of the lab in ``folder`` and return the answer.

    Raises:
        LabError: It failed there, or nobody answers.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(REQUEST_DEADLINE_S)
        try:
            line.connect(str(Path(folder, "control")))
            line.sendall(json.dumps({"do": do, **values}).encode() + b"\n")
            with line.makefile() as file:
                answer = json.loads(file.readline() or '{"error": "the lab has ended"}')
        except OSError as error:
            raise LabError(f"the lab in {folder} does not answer: {error}") from error
    if "error" in answer:
        raise LabError(f"{do}: {answer['error']}")
    return answer["ok"]


def start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks: with its pid, this names it for good. Empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
