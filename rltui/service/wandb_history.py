"""The history of any W&B run, other systems' too: from its offline file, or asked of the W&B API.

A run of rltui needs none of this, because its metrics.jsonl has the same numbers. It is for the runs that people
compare with: those of verl, TRL or open-instruct, of which only W&B knows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rltui.errors import ClusterError, MissingExtraError, UsageError
from rltui.onnode.metric_names import canonical
from rltui.paths import is_file, is_folder
from rltui.watch.metrics import MetricCurves
from rltui.watch.snapshots import MetricsSnapshot
from rltui.watch.text import plain

API_SAMPLES = 10_000
"""Points that the API is asked for; of a longer history it sends a sample of as many."""

API_TIMEOUT_S = 30

CALLS = "_step"
"""W&B's count of log calls."""

HISTORY = b'"type":"history"'

COMMAND = (sys.executable, "-m", "wandb", "leet", "inspect", "--json")
"""W&B's own reader of its files."""


def read_history(source: str) -> MetricsSnapshot:
    """The curves of the W&B run that ``source`` names, by the names that rltui has for them.

    Args:
        source: A ``.wandb`` file, a folder with one (a run's, or W&B's own with many: its newest run), or
            ``ENTITY/PROJECT/RUN``, also as the address of the run's page.

    Raises:
        UsageError: It is none of these, or there is no such run.
        ClusterError: W&B does not answer, or refuses the key.
        MissingExtraError: The package wandb is not installed here.
    """
    curves = MetricCurves()
    for line in _by_own_step(_lines(source)):
        curves.add(line)
    return curves.every_step()


def _by_own_step(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """``lines`` on one axis: W&B's own count of log calls is a step only in a run that logs none of its own."""
    has_own = False
    for line in lines:
        own = any(canonical(name) == "step" for name in line if name != CALLS)
        has_own = has_own or own
        if own:
            yield {name: value for name, value in line.items() if name != CALLS}
        elif not has_own:
            yield line


def _lines(source: str) -> Iterable[dict[str, Any]]:
    if is_file(Path(source)) or is_folder(Path(source)):
        return _from_file(Path(source))
    parts = source.split("?")[0].rstrip("/").removeprefix("https://").split("/")
    if "runs" in parts[2:-1]:
        where = parts.index("runs", 2)
        parts = [*parts[where - 2 : where], parts[where + 1]]
    if len(parts) == 3 and all(parts) and not source.startswith((".", "/", "~")):
        return _from_api("/".join(parts))
    raise UsageError(f"there is no file {source}", "give a .wandb file, its folder, or ENTITY/PROJECT/RUN")


def _from_file(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, read by W&B's own reader: the format is theirs, and a file that grows is fine."""
    command = [*COMMAND, str(path)]
    # into a file: a pipe that nobody empties meanwhile would stop a reader that complains of each record
    with tempfile.TemporaryFile() as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as reader:
        if reader.stdout is None:
            raise RuntimeError("the reader was started without a pipe")
        for line in reader.stdout:
            if HISTORY in line:
                yield json.loads(line)["history"]["item"]
        reader.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if reader.returncode:
        if "No module named" in said:
            raise _missing()
        last = plain(said.strip().splitlines()[-1]) if said.strip() else f"its reader ended with {reader.returncode}"
        raise UsageError(f"{path} cannot be read as a W&B run: {last}")


def _from_api(run: str) -> Iterable[dict[str, Any]]:
    try:
        import wandb
    except ModuleNotFoundError:
        raise _missing() from None
    try:
        found: list[dict[str, Any]] = wandb.Api(timeout=API_TIMEOUT_S).run(run).history(API_SAMPLES, pandas=False)
    except (wandb.errors.Error, wandb.errors.UsageError, ValueError, OSError) as error:
        if "not find run" in str(error):
            raise UsageError(f"W&B has no run {run}", "is it ENTITY/PROJECT/RUN, with the run's id?") from error
        hint = "`wandb login` stores a key; WANDB_BASE_URL names another server"
        raise ClusterError(f"W&B did not give the history of {run}: {plain(str(error))}", hint) from error
    return found


def _missing() -> MissingExtraError:
    return MissingExtraError("W&B's files are read by its own package, which is not here", "pip install wandb")
