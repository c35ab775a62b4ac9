"""A team on one cluster: bob shares his runs with a group, alice sees them and may not touch them, carol sees none."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from slurm_support import profile_file
from terminal import Terminal
from verbs import rltui

from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
SHARED = "/home/shared"
SCRIPT = """#!/bin/bash
echo a line of the script
umask >made-by-the-script
"""
TRAP = """
set -e
cd {root}
mkdir -p evil-0001/attempts/01 linked-0002 "$(printf 'esc\\033]0;x\\007-0003')" {own}/attempts/01
python3 - <<'END'
import json, os
run = {{"name": "evil \\x1b]0;gotcha\\x07[bold]", "cluster": "\\x1b[2J", "created_at": 5e9, "gpu": "x" * 10**5}}
json.dump(run, open("evil-0001/run.json", "w"))
json.dump(run, open("{own}/run.json", "w"))
attempt = "evil-0001/attempts/01/"
json.dump({{"uuid": "u", "argv": []}}, open(attempt + "job.json", "w"))
open(attempt + "stage.json", "w").write("[" * 200000)
os.mkfifo(attempt + "end.json")
os.symlink("/home/alice/.ssh/id_ed25519", attempt + "out.log")
os.symlink("/dev/zero", attempt + "events.jsonl")
os.truncate(os.open(attempt + "metrics.jsonl", os.O_CREAT | os.O_WRONLY, 0o644), 1 << 36)
json.dump({{"dashboard": "http://127.0.0.1:1", "token": "t", "host": ""}}, open(attempt + "ray.json", "w"))
os.symlink("/home/alice/own.json", "linked-0002/run.json")
END
for folder in esc*; do cp evil-0001/run.json "$folder"; done
chmod -R go+rX .
"""


class Member:
    """A user of the cluster, with rltui on a machine of his own."""

    def __init__(self, lab: Lab, folder: Path, user: str, *keys: str) -> None:
        self.user, self._lab = user, lab
        self.folder = folder / user
        (self.folder / "config").mkdir(parents=True)
        (self.folder / "run.sh").write_text(SCRIPT)
        text = profile_file(sys.executable, f"user: {user}", *keys)
        text = text.replace("run_root: ~/runs", f"run_root: {SHARED}/{user}/rltui")
        (self.folder / "config/clusters.yaml").write_text(text)
        names = {"CONFIG_DIR": "config", "STATE_DIR": "state", "CACHE_DIR": "cache", "RUN_ROOT": "runs"}
        self.environment = {
            **os.environ,
            **{f"RLTUI_{name}": str(self.folder / value) for name, value in names.items()},
            "RLTUI_SSH_CONFIG": str(lab.ssh_settings().config),
            "PYTHONPATH": str(ROOT),
        }

    def rltui(self, *words: str, expect: int = 0) -> str:
        done = rltui(words, self.folder, self.environment, codes=(expect,))
        return done.stdout + done.stderr

    def runs(self, *words: str) -> list[dict[str, Any]]:
        return list(json.loads(self.rltui("ps", *words, "--json").partition("\n{")[0])["runs"])

    def launch(self) -> str:
        words = ("--nodes", "1", "--gpus-per-node", "1", "--folder", f"/home/{self.user}", "--cluster", "lab", "--wait")
        self.rltui("launch", "run.sh", *words)
        queue = ["squeue", "-h", "-u", self.user]
        eventually(lambda: not self._lab.exec("login", queue).stdout, "the end of its job, which still writes")
        return str(self.runs()[0]["run_id"])

    def modes(self, run: str) -> dict[str, str]:
        """Mode and group of everything in a run, by its path in there."""
        found = self._lab.exec(
            "login", ["find", f"{SHARED}/{self.user}/rltui/{run}", "-not", "-type", "l", "-printf", "%P %m %g %y\n"],
            user="root",
        ).stdout  # fmt: skip
        return {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in found.splitlines()}


def secrets(modes: dict[str, str]) -> set[str]:
    return {path for path, mode in modes.items() if mode.split()[0].endswith("00")}


def stay_private(alice: Member, bob: Member) -> str:
    own = alice.launch()
    assert {mode.split()[0] for mode in alice.modes(own).values() if mode.endswith("d")} == {"700"}
    assert not [
        mode for mode in alice.modes(own).values() if mode.endswith("f") and mode.split()[0] not in ("600", "644")
    ]
    assert bob.runs() == []
    return own


def are_shared_without_secrets(lab: Lab, bob: Member) -> tuple[str, dict[str, str]]:
    run = bob.launch()
    modes = bob.modes(run)
    assert modes["run.json"] == modes["attempts/01/end.json"] == modes["attempts/01/out.log"] == "640 team f"
    assert modes["attempts"] == modes["attempts/01"] == modes["checkpoints"] == "2750 team d"
    private = {"attempts/01/own_code.zip", "attempts/01/ray.json", "attempts/01/status.json", "attempts/01/env"}
    assert private & set(modes) <= secrets(modes)
    assert not [path for path, mode in modes.items() if mode.split()[0][-1] != "0" and "slurm-" not in path]
    assert lab.exec("login", ["cat", "/home/bob/made-by-the-script"], user="bob").stdout.strip() == "0027"
    carol = lab.exec("login", ["ls", f"{SHARED}/bob/rltui/{run}"], user="carol", check=False)
    assert carol.returncode
    assert "denied" in carol.stderr
    return run, modes


def are_seen_and_left_alone(alice: Member, bob: Member, own: str, run: str, modes: dict[str, str]) -> None:
    assert [one["run_id"] for one in alice.runs()] == [own]
    theirs = [one for one in alice.runs("--all") if one["owner"]]
    assert [(one["run_id"], one["owner"], one["state"]) for one in theirs] == [(run, "bob", "finished")]
    assert "bob@lab" in alice.rltui("ps", "--all")
    assert "a line of the script" in alice.rltui("logs", run)
    assert "bob@lab" in alice.rltui("show", run)
    for verb in (("cancel", "--yes"), ("resubmit", "--yes"), ("rm", "--yes"), ("fix", "--yes"), ("auto",), ("hold",)):
        said = alice.rltui(verb[0], run, *verb[1:], expect=2)
        assert f"{run}: this is bob's run." in said, said
    assert modes == bob.modes(run)
    journal = (alice.folder / "state/journal.jsonl").read_text()
    assert run not in journal


def are_refused_in_the_cockpit(alice: Member) -> None:
    terminal = Terminal(f"cd {ROOT} && {sys.executable} -m rltui", alice.environment)
    try:
        terminal.until("bob@lab")
        terminal.keys("r")
        terminal.until("this is bob's run")
    finally:
        terminal.close()


def are_examined(lab: Lab, alice: Member, bob: Member) -> None:
    def said(member: Member, name: str) -> dict[str, str]:
        checks = json.loads(member.rltui("doctor", "lab", "--json"))["checks"]
        return next(one for one in checks if one["name"] == name)

    assert said(bob, "sharing")["state"] == "ok"
    assert f"{SHARED}/bob/rltui" in said(alice, "team")["found"]
    lab.exec("login", ["chmod", "750", f"{SHARED}/bob"], user="root")
    assert f"team cannot pass {SHARED}/bob (750 bob)" in said(bob, "sharing")["cause"]
    lab.exec("login", ["chmod", "755", f"{SHARED}/bob"], user="root")


def lead_nowhere(lab: Lab, alice: Member, own: str, run: str) -> None:
    lab.exec("login", ["sh", "-c", 'echo \'{"name":"stolen"}\' >own.json; chmod 600 own.json'])
    lab.exec("login", ["bash", "-c", TRAP.format(root=f"{SHARED}/bob/rltui", own=own)], user="bob")
    seen = {one["run_id"]: one for one in alice.runs("--all")}
    assert set(seen) == {own, run, "evil-0001"}
    assert seen[own]["owner"] == ""
    assert seen["evil-0001"]["owner"] == "bob"
    assert "\x1b" not in alice.rltui("ps", "--all") + alice.rltui("show", "evil-0001")
    log = alice.rltui("logs", "evil-0001")
    assert "PRIVATE KEY" not in log + alice.rltui("show", "evil-0001", "--json")
    assert "this is bob's run" in alice.rltui("rm", "evil-0001", "--yes", expect=2)
    alice.rltui("rm", own, "--yes")  # the name means her own


@pytest.mark.tmux
def test_a_colleague_sees_shared_runs_and_cannot_touch_them(slurm_cluster: Lab, tmp_path: Path) -> None:
    lab = slurm_cluster
    lab.exec("login", ["rm", "-rf", SHARED], user="root")
    for user in ("alice", "bob"):
        lab.exec("login", ["install", "-d", "-o", user, "-g", user, "-m", "755", f"{SHARED}/{user}"], user="root")
    bob = Member(lab, tmp_path, "bob", "run_root_group: team")
    alice = Member(lab, tmp_path, "alice", f"team_run_roots: ['{SHARED}/*/rltui']")
    own = stay_private(alice, bob)
    run, modes = are_shared_without_secrets(lab, bob)
    are_seen_and_left_alone(alice, bob, own, run, modes)
    are_refused_in_the_cockpit(alice)
    are_examined(lab, alice, bob)
    lead_nowhere(lab, alice, own, run)
