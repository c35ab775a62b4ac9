"""Everything that only a card can show, on this machine: ``make gpu``.

The parts of ``rltui selftest --thorough``, with sizes for one or more cards of 80 to 140 GB, and the result as JSON and
Markdown in ``tests/bench/results``. ``ARGS='--model FOLDER'`` takes a model of yours, ``ARGS='--only card'`` one part.
Where there is no card it says what it could not show, and ends with 2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from rltui.layout.selftest import PARTS  # noqa: E402
from rltui.onnode.preflight import list_gpus  # noqa: E402

RESULTS = Path(__file__).with_name("results")
NOTHING_TO_MEASURE = 2


def main() -> int:
    """The self-test's exit code, or 2 where there is no card."""
    count, complaint = list_gpus()
    if not count:
        print(f"NO CARD HERE ({complaint or 'the driver lists none'}). Nothing of this has been shown:")
        for part in PARTS:
            print(f"  {part.name:<16} {part.summary}")
        return NOTHING_TO_MEASURE
    with tempfile.TemporaryDirectory(prefix="rltui-gpu-") as folder:
        names = {"RLTUI_RUN_ROOT": "runs", "RLTUI_STATE_DIR": "state"}
        environment = {**os.environ, **{name: f"{folder}/{part}" for name, part in names.items()}}
        argv = [sys.executable, "-m", "rltui", "selftest", "--thorough", "--yes", "--json", *sys.argv[1:]]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, check=False)
    if not done.stdout.strip():
        return done.returncode
    told = json.loads(done.stdout)
    RESULTS.mkdir(exist_ok=True)
    name = f"gpu-{told['gpu']}-{time.strftime('%Y-%m-%d', time.localtime(told['measured_at']))}"
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    (RESULTS / f"{name}.md").write_text(table(told))
    print(table(told))
    print(f"written to {RESULTS / name}.json and .md")
    return done.returncode


def table(told: dict[str, Any]) -> str:
    """The result as Markdown."""
    day = time.strftime("%Y-%m-%d", time.localtime(told["measured_at"]))
    title = f"# {told['gpus_per_node']} × {told['gpu']}, {day}, model {told['model']}"
    rows = [f"| {row['part']} {row['what']} | {row['verdict']} | {row['figure']} |" for row in told["rows"]]
    return "\n".join([title, "", "| part | verdict | figure |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    sys.exit(main())
