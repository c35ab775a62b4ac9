"""A Slurm that answers what a test wants, where a real one cannot be made to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rltui.cluster.relay_types import Completed, FileChunk, Hello
from rltui.cluster.slurm.queries import ACCOUNTING_FIELDS, QUEUE_FIELDS

UUID = "0f3e9a2b5c7d4e6f8a9b0c1d2e3f4a5b"
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
DBD_DOWN = "sacct: error: Problem talking to the database: Connection refused"
OLD = "squeue: error: Invalid job format specification: RestartCnt"
Row = dict[str, str]


class ScriptedSlurm:
    """A relay whose host has the Slurm that a test describes; its clock stands still unless it is moved."""

    place = "the script"
    slurm_cluster = ""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.queue: list[Row] = []
        self.records: list[Row] = []
        self.failures: dict[str, str] = {}
        self.errors: dict[str, Exception] = {}
        self.knows_long_format = True
        self.config = "PrivateData             = none\nMinJobAge               = 300 sec\n"
        self.script = "#!/bin/bash\n#SBATCH --time=1-00:00:00\n#SBATCH --account=ours\n"
        self.associations = ""
        self.calls: list[list[str]] = []
        self.cleared: list[str] = []
        self.limits: dict[str, int] = {}

    def clock(self) -> float:
        return self.now

    def hello(self) -> Hello:
        return Hello(1, "3.11", "login", "alice", 1, "/home/alice", 2, self.now)

    def read(self, path: str) -> FileChunk:
        return FileChunk(self.script.encode(), 0, len(self.script), 1, self.now)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        idempotent: bool = False,
        limit: int = 0,
    ) -> Completed:
        words = [*argv]
        if words[0] == "env":  # env -u NAME -u NAME … TOOL
            self.cleared = [name for flag, name in pairwise(words) if flag == "-u"]
            words = words[1 + 2 * words.count("-u") :]
        tool = words[0]
        self.limits[words[-1]] = limit
        self.calls.append(words)
        if tool in self.errors:
            raise self.errors[tool]
        if tool in self.failures:
            return Completed(1, "", self.failures[tool])
        return self.answer(tool, words)

    def answer(self, tool: str, words: list[str]) -> Completed:
        if tool == "scontrol" and words[1:] == ["show", "config"]:
            return Completed(0, self.config, "")
        if tool == "sacctmgr":
            wanted = words[-1].removeprefix("format=").split(",")
            names = ("cluster", "account")
            rows = [dict(zip(names, line.split("|"), strict=True)) for line in self.associations.splitlines()]
            return Completed(0, "".join("|".join(row[name] for name in wanted) + "\n" for row in rows), "")
        if tool == "id":
            return Completed(0, "2001\n", "")
        if tool == "squeue" and any("%Q" in word for word in words):
            mark = words[-1].partition("%i")[2].partition("%P")[0]
            waiting = [row for row in self.queue if row["state"] == "PENDING"]
            return Completed(0, "".join(f"{row['id']}{mark}gpu{mark}10{mark}\n" for row in waiting), "")
        if tool == "squeue":
            if not self.knows_long_format and words[-1].startswith("--Format="):
                return Completed(0, "", OLD)
            mark = "^" + words[-1].split("^")[1] + "^"
            return Completed(0, "".join(row_text(QUEUE_FIELDS, row, mark) for row in self.asked(words)), "")
        if tool == "sacct":
            mark = next(word for word in words if word.startswith("--delimiter=")).partition("=")[2]
            return Completed(0, "".join(row_text(ACCOUNTING_FIELDS, row, mark) for row in self.records), "")
        return Completed(0, "4242\n" if tool == "sbatch" else "", "")

    def asked(self, words: list[str]) -> list[Row]:
        ids = [word.partition("=")[2].split(",") for word in words if word.startswith("--jobs=")]
        return [row for row in self.queue if not ids or row["id"] in ids[0]]

    def count(self, tool: str) -> int:
        return sum(words[0] == tool for words in self.calls)


def row_text(fields: Mapping[str, object], row: Row, mark: str) -> str:
    defaults = {
        "uid": "2001",
        "user": "alice",
        "name": "run",
        "partition": "gpu",
        "submit": "1800000000",
        "exit": "0:0",
    }
    return "".join(f"{(defaults | row).get(field, '')}{mark}" for field in fields) + "\n"
