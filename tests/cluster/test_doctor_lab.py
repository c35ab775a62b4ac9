"""`rltui doctor` and `rltui setup` on a real Slurm cluster behind a real sshd."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
import time
from typing import TYPE_CHECKING

import pytest
from lab.spec import PASSWORD

from rltui.cli.main import main
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.transport import NeedsAttentionError
from rltui.service.doctor import examine
from rltui.service.doctor_checks import Check, verdict

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

    from rltui.cluster.prompts import Prompter, Question

OFFER = {"partition": "gpu", "gpu": "H100", "gres": "gpu:h100", "gpus_per_node": 4, "offline": True}


class Answering:
    attended = True

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    def ask(self, question: Question) -> tuple[str, ...]:
        self.asked.append(question)
        return (self.answer,) * len(question.fields)


@pytest.fixture
def at_lab(slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("RLTUI_SSH_CONFIG", str(slurm_cluster.ssh_settings().config))
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    return slurm_cluster


def look(prompter: Prompter | None = None, nodes: bool = False, **keys: object) -> dict[str, Check]:
    profile = Profile(name="lab", host="lab", **(OFFER | keys))  # type: ignore[arg-type]
    confirm = (lambda _: True) if nodes else None
    return {check.name: check for check in examine(profile, prompter or UnattendedPrompter(), confirm_nodes=confirm)}


def states(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items() if check.state != "ok"}


def test_a_healthy_cluster(at_lab: Lab) -> None:
    checks = look(nodes=True)
    # the login node's own Python has no torch
    assert states(checks) == {"python": "warning"}, checks
    assert verdict(list(checks.values())) == 0
    assert checks["login"].found.endswith("id_ed25519")
    assert "12 GPUs" in checks["nodes"].found
    assert "4 GPUs" in checks["node"].found
    assert checks["gpu"].found == "H100-SXM-80GB"
    assert "0 jobs" in checks["squeue"].found
    left = at_lab.exec("login", ["sh", "-c", "ls -A ~ ~/.local/share/rltui/runs; squeue -h"]).stdout
    assert "doctor" not in left


def test_each_broken_link_is_named_with_what_to_do(at_lab: Lab) -> None:
    at_lab.exec("login", ["sh", "-c", "umask 022; echo X=1 > ~/open-env; echo 'echo Welcome' >> ~/.bashrc"])
    checks = look(
        nodes=True,
        partition="nowhere",
        run_root="/proc/runs",
        env_file="~/open-env",
        setup_lines=["false-module load x; exit 7"],
        gpu="A100-80GB",
        offline=False,
    )
    found = states(checks)
    assert found == {
        "greeting": "warning",
        "partition": "failed",
        "nodes": "failed",
        "sbatch": "failed",
        "run root": "failed",
        "python": "failed",
        "env file": "failed",
        "node": "failed",
    }
    assert all(check.next_step for check in checks.values() if check.state in ("failed", "warning"))
    assert "gpu, debug, low" in checks["partition"].next_step
    assert "Welcome" in checks["greeting"].found
    assert "chmod 600" in checks["env file"].next_step
    assert verdict(list(checks.values())) == 1


def test_a_run_root_that_nodes_do_not_see(at_lab: Lab) -> None:
    checks = look(nodes=True, run_root="/tmp/runs", offline=False)
    assert checks["run root"].state == "ok"
    assert "node1 does not see" in checks["shared disk"].found
    assert checks["internet"].state == "warning"


def test_a_wrong_clock(at_lab: Lab) -> None:
    at_lab.clock("login", 600)
    assert "600" in look()["clock"].found
    assert look()["clock"].state == "failed"


def test_a_controller_that_is_down(at_lab: Lab) -> None:
    with at_lab.controller_away():
        checks = look()
    assert checks["scheduler"].state == "failed"
    assert checks["run root"].state == "ok"
    assert verdict(list(checks.values())) == 1


def test_an_account_that_is_asked_for_a_password(at_lab: Lab) -> None:
    checks = look(user="carol")
    assert list(checks) == ["way", "connection"]
    assert verdict(list(checks.values())) == 3
    me = Answering(PASSWORD)
    assert look(me, user="carol")["login"].found == "keyboard-interactive"
    assert len(me.asked) == 1
    both = look(Answering(PASSWORD), user="dora")
    assert both["login"].found.endswith("id_ed25519 + keyboard-interactive")
    assert look(Answering(PASSWORD), user="dora", transport="openssh")["login"].state == "ok"


def test_the_link_is_down(at_lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    at_lab.ssh.stop()
    checks = look()
    assert verdict(list(checks.values())) == 3
    assert checks["connection"].next_step


def test_setup_writes_a_profile_that_doctor_finds_fine(
    at_lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "--yes", "--host", "lab"]) == 0
    assert "gpu: H100-SXM-80GB" in (tmp_path / "clusters.yaml").read_text()
    assert main(["setup", "--yes", "--host", "lab"]) == 2
    assert "--replace" in capsys.readouterr().err
    key = tmp_path / "key"
    key.write_bytes(at_lab.ssh_settings().key.read_bytes())
    key.chmod(0o600)
    with (tmp_path / "clusters.yaml").open("a") as file:
        file.write(f"  identity_file: {key}\n  summary: kept\n")
    assert main(["setup", "--yes", "lab", "--replace"]) == 0  # the way to it is the file's
    written = (tmp_path / "clusters.yaml").read_text()
    assert ("host: lab" in written, f"identity_file: {key}" in written, "summary: kept" in written) == (True,) * 3
    capsys.readouterr()
    assert main(["doctor", "lab", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 1
    assert report["ok"]
    assert {"way", "host key", "login", "round trip", "squeue"} <= {check["name"] for check in report["checks"]}


def test_setup_asks_and_keeps_what_is_there(at_lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text("# mine\nother: {host: x}  # keep\nlab:\n  host: old\n  env: {A: b}\n")
    answers = ["lab", "mine-at-lab", "debug", "", "", "~/runs", "", "module load x", "", "yes"]
    said, code = on_a_terminal([sys.executable, "-m", "rltui", "setup"], answers)
    assert code == 0, said
    text = file.read_text()
    assert text.startswith("# mine\nother: {host: x}  # keep\nlab:\n  host: old\n  env: {A: b}\n\nmine-at-lab:\n")
    assert "partition: debug" in text
    assert "- module load x" in text
    said, code = on_a_terminal([sys.executable, "-m", "rltui", "setup", "lab", "--host", "lab"], [""] * 6 + ["no"])
    assert code == 2, said
    assert "A: b" in said  # what setup knows nothing of is kept
    assert file.read_text() == text


def test_a_password_is_asked_for_on_the_terminal_and_not_shown(at_lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("carol: {host: lab, user: carol}\n")
    said, code = on_a_terminal([sys.executable, "-m", "rltui", "doctor", "carol"], [PASSWORD])
    assert "keyboard-interactive" in said
    assert PASSWORD not in said
    assert code == 0, said


def on_a_terminal(argv: list[str], answers: list[str]) -> tuple[str, int]:
    """Run a program on a terminal of its own and answer each prompt when it stands there."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp(argv[0], argv)
    said, left, end = b"", list(answers), time.monotonic() + 240
    while time.monotonic() < end:
        if not select.select([master], [], [], 0.2)[0]:
            if left and said.rstrip(b" ")[-1:] in (b":", b"]"):
                os.write(master, left.pop(0).encode() + b"\n")
                said += b"\n"
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        said += data
    status = os.waitpid(pid, 0)[1]
    os.close(master)
    return said.decode("utf-8", "replace"), os.waitstatus_to_exitcode(status)


def test_the_prompters_refusal_is_no_crash(at_lab: Lab) -> None:
    class Refusing(Answering):
        def ask(self, question: Question) -> tuple[str, ...]:
            raise NeedsAttentionError("You did not answer.")

    checks = look(Refusing(""), user="carol")
    assert checks["connection"].found == "You did not answer."
