"""What nodes report before the start and what is made of it; addresses, ports, requeued folders, private files."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from watch_support import await_that

from rltui import paths
from rltui.onnode import hands_off, node_check, node_network, node_report, processes, ray_nodes, ray_process, rundir
from rltui.onnode.allocation import cause_of_signal, start_step, step_command
from rltui.onnode.environment import EnvironmentFileError, attempt_environment, read_environment, read_private_file
from rltui.onnode.ray_agents import progress, rendezvous_s
from rltui.onnode.requeue import folder_of_start

NODES = ["nid1", "nid2", "nid3"]


def report(node: str, time: float = 100.0, **changes: Any) -> dict[str, Any]:
    base = {"rltui_node_check": 1, "node": node, "time": time, "problems": [], "warnings": []}
    return {**base, "versions": {"python": "3.11.2"}, "environment": "e1", "address": "10.0.0.1", **changes}


def merged(reports: list[dict[str, Any]], errors: str = "") -> dict[str, Any]:
    return node_report.merge(NODES, {one["node"]: one for one in reports}, errors, 99.0, 101.0)


def test_healthy_nodes_make_a_go() -> None:
    found = merged([report(node) for node in NODES])
    assert found["ok"]
    assert found["bad_nodes"] == {}
    assert list(found["nodes"]) == NODES


def test_lines_of_nodes_are_found_among_other_words() -> None:
    ours = '{"rltui_node_check": 1, "node": "nid2"}'
    noise = f'Welcome to nid2!\n{ours[:30]}\nmotd: {ours}\n{{"a": 1}}\n[1]\n'
    assert node_report.parse(noise) == {"nid2": {"rltui_node_check": 1, "node": "nid2"}}


def test_a_silent_node_is_bad_and_a_named_one_is_the_only_one() -> None:
    assert merged([report("nid1"), report("nid3")])["bad_nodes"] == {"nid2": "did not answer within 2 s"}
    errors = "slurmstepd-nid3: error: execve(): python3: No such file or directory\n"
    errors += "srun: error: nid3: task 2: Exited with exit code 2\n"
    found = merged([report("nid1")], errors)
    assert list(found["bad_nodes"]) == ["nid3"]
    assert "execve(): python3: No such file" in found["bad_nodes"]["nid3"]
    assert found["nodes"]["nid2"]["warnings"] == ["was not asked to the end"]
    launch = "srun: error: Task launch for StepId=12.0 failed on node nid2: Communication connection failure\n"
    assert list(merged([], launch)["bad_nodes"]) == ["nid2"]


def test_the_odd_environment_out_is_named_with_the_difference() -> None:
    odd = report("nid1", environment="e2", versions={"python": "3.11.2", "ray": "2.9.0"})
    same = {"python": "3.11.2", "ray": "2.60.0"}
    found = merged([odd, report("nid2", versions=same), report("nid3", versions=same)])
    assert found["bad_nodes"] == {"nid1": "another environment: ray 2.9.0 instead of 2.60.0"}


def test_a_run_that_goes_on_with_other_versions_is_told() -> None:
    before = merged([report("nid1", versions={"ray": "2.9.0", "torch": "2.1"})])
    now = merged([report("nid1", versions={"ray": "2.60.0", "torch": "2.1"})])
    assert node_report.changed_since(before, now) == "ray 2.60.0 instead of 2.9.0"
    assert node_report.changed_since(before, before) == ""
    assert node_report.changed_since({}, now) == ""


def test_clocks_are_judged_by_what_the_answer_took() -> None:
    found = merged([report("nid1", 98.0), report("nid2", 701.0), report("nid3", 39.0)])
    assert found["ok"]
    assert found["nodes"]["nid1"]["warnings"] == []
    assert found["nodes"]["nid2"]["warnings"] == ["its clock is 600 s early"]
    assert found["nodes"]["nid3"]["warnings"] == ["its clock is 60 s late"]


def test_the_sentence_names_nodes_and_reasons() -> None:
    bad = {f"n{number}": "3 of 4 GPUs" for number in range(6)}
    assert node_report.sentence({"n1": "3 of 4 GPUs"}, 8) == "1 of 8 nodes cannot run this job; n1: 3 of 4 GPUs"
    assert node_report.sentence(bad, 8).endswith("n3: 3 of 4 GPUs and 2 more")


def test_progress_is_the_sentence_that_people_know() -> None:
    assert progress(["nid010869"], 8) == "7/8 nodes, missing nid010869"
    assert progress([], 8) == "8/8 nodes"
    assert progress(list("abcdef"), 8) == "2/8 nodes, missing a, b, c, d and 2 more"


def test_this_node_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "preflight").mkdir()
    (tmp_path / "preflight" / "question.json").write_text('{"question": "x"}')
    (tmp_path / "job.json").write_text(json.dumps({"ray": {"gpus": 0}, "modules": ["json"], "code": ""}))
    monkeypatch.setattr("sys.argv", ["x", "--attempt", str(tmp_path), "--job", "7"])
    assert node_check.main() == 0
    (found,) = node_report.parse(capsys.readouterr().out).values()
    assert found["problems"] == []
    assert found["address"] == "127.0.0.1"
    assert found["environment"] == node_check.environment_hash(node_check.versions())
    assert rundir.read_json(str(tmp_path / "preflight" / f"answer-{found['node']}.json")) == {"question": "x"}


@pytest.mark.parametrize(
    ("job", "words", "problem"),
    [
        ({"ray": {"gpus": 4}}, [], "0 of 4 GPUs"),
        ({"ray": {"gpus": 0}, "modules": ["no_such_module"]}, [], "cannot import no_such_module"),
        ({"ray": {"gpus": 0}}, ["--interface", "ib7"], "there is no interface ib7"),
        ({"ray": {"gpus": 0}}, ["--peers", "no-such-host.invalid"], "no other node can be reached by its name"),
        ({"ray": {"gpus": 0}}, [], "the run directory does not show what the head node wrote"),
    ],
)
def test_what_is_wrong_with_a_node_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    job: dict[str, Any], words: list[str], problem: str,
) -> None:  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["x", "--attempt", str(tmp_path), "--job", "7", *words])
    assert node_check.main() == 0
    (found,) = node_report.parse(capsys.readouterr().out).values()
    assert any(problem in one for one in found["problems"]), found["problems"]


def test_ports_lie_outside_of_the_ephemeral_range() -> None:
    for ephemeral in ((32768, 60999), (15000, 65000), (1024, 65535)):
        for job in (0, 1, 99, 67_043_327):
            first = node_network.blocks(job, ephemeral)
            assert len(set(first)) == node_network.TRIES
            assert all(node_network.LOWEST_PORT <= port <= node_network.HIGHEST_PORT for port in first)
            if ephemeral[0] > node_network.LOWEST_PORT + node_network.BLOCK_PORTS:
                assert all(port + node_network.BLOCK_PORTS <= ephemeral[0] for port in first)
    neighbours = {node_network.blocks(job, (32768, 60999))[0] for job in range(50)}
    assert len(neighbours) == 50


def test_a_taken_port_moves_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1 + (node_network.HIGHEST_PORT - node_network.LOWEST_PORT) // node_network.BLOCK_PORTS
    monkeypatch.setattr(node_network, "TRIES", count)  # whatever else runs here, two blocks are free
    found = node_network.reserve_block(4711)
    assert found.gcs in node_network.blocks(4711, node_network.ephemeral_range())
    assert len(set(found)) == len(found)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", found.gcs + 100))
        holder.listen()
        assert node_network.reserve_block(4711).gcs != found.gcs
    with pytest.raises(node_network.NoPortsError, match="none left"):
        node_network.reserve_block(4711, skip=count)


@pytest.mark.parametrize("kernel", [(32768, 60999), (1024, 65535)])
def test_single_ports_are_free_on_every_address_and_not_the_kernel_s_where_others_are_left(
    kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_network, "ephemeral_range", lambda: kernel)
    with contextlib.ExitStack() as held:
        taken = set()
        for port in [*range(61000, 61600), *[0] * 100]:  # on one address only, as Ray's and the dashboard's are
            holder = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                holder.bind(("127.0.0.1", port))
                taken.add(holder.getsockname()[1])
        drawn = [node_network.free_ports(10) for _ in range(50)]
    assert all(len(set(ports)) == 10 for ports in drawn)
    # drawn blindly, an eighth would be among the taken
    assert not taken.intersection(port for ports in drawn for port in ports)
    assert all(port > kernel[1] for ports in drawn for port in ports) == (kernel[1] < 61000)


def test_addresses_come_from_the_kernel() -> None:
    assert node_network.interface_address("lo") == "127.0.0.1"
    assert node_network.interface_of("127.0.0.1") == "lo"
    assert node_network.interface_address("no-such-interface-name") is None
    assert node_network.interface_of("203.0.113.9") == ""
    assert node_network.routed_address("localhost") is None


def test_collectives_use_the_interface_that_ray_uses_unless_the_user_chose() -> None:
    environment = {"NCCL_SOCKET_IFNAME": "ib0"}
    ray_nodes.use_interface(environment, "127.0.0.1")
    assert environment == {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}
    environment = {}
    ray_nodes.use_interface(environment, "127.0.0.1")
    assert environment["NCCL_SOCKET_IFNAME"] == "=lo"  # NCCL takes a bare name for the beginning of names


def test_only_live_nodes_of_ray_count() -> None:
    rows = [
        {"node_ip": "10.0.0.1", "state": "ALIVE", "resources_total": {"CPU": 2.0}},
        {"node_ip": "10.0.0.2", "state": "DEAD", "resources_total": {"CPU": 2.0}},
        {"node_ip": "10.0.0.3", "state": "ALIVE", "resources_total": None},
    ]
    assert ray_nodes.parse_nodes({"data": {"result": {"result": rows}}}) == {"10.0.0.1": {"CPU": 2.0}, "10.0.0.3": {}}
    for strange in (None, [], {}, {"data": None}, {"data": {"result": {"result": ["x"]}}}):
        assert ray_nodes.parse_nodes(strange) == {}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("slurmstepd: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***", "TIME LIMIT"),
        (
            "slurmstepd-n: error: *** JOB 7 ON n CANCELLED AT 2026-11-20T10:00:00 DUE TO NODE FAILURE, SEE …",
            "NODE FAILURE",
        ),
        ("slurmstepd: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-20T10:00:00 DUE TO PREEMPTION ***", "PREEMPTION"),
        ("slurmstepd: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-20T10:00:00 DUE TO JOB REQUEUE ***", "JOB REQUEUE"),
        ("slurmstepd: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-20T10:00:00 ***", ""),
        (
            "slurmstepd: error: *** STEP 7.3 ON nid1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***",
            "TIME LIMIT",
        ),
        ("slurmstepd: error: *** JOB 77 ON nid1 CANCELLED AT 2026-11-20T10:00:00 ***", None),
        ("", None),
    ],
)
def test_why_slurm_ends_a_job_is_read_from_its_own_words(line: str, cause: str | None) -> None:
    assert cause_of_signal(f"before\n{line}\nafter", 7) == cause


def test_steps_share_what_the_job_has() -> None:
    words = step_command(["nid2", "nid3"], 64)
    assert {"--overlap", "--nodes=2", "--ntasks=2", "--nodelist=nid2,nid3", "--cpus-per-task=64"} <= set(words)


def test_a_step_takes_nothing_from_variables_meant_for_other_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nenv\n")
    srun.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    others = ("SLURM_GPUS_PER_NODE", "SLURM_TIMELIMIT", "SLURM_STDOUTMODE", "SLURM_CPUS_PER_TASK")
    for name in (*others, "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE"):
        monkeypatch.setenv(name, "1")
    with (tmp_path / "out").open("wb") as out:
        assert start_step(["nid1"], 1, ["true"], subprocess.DEVNULL, out, out).wait() == 0
    seen = (tmp_path / "out").read_text()
    assert "SLURM_JOB_ID=1" in seen
    assert "SLURM_GPUS_ON_NODE=1" in seen
    assert not [name for name in others if f"{name}=" in seen]


def submitted(run: Path) -> Path:
    attempt = run / "attempts" / "01"
    attempt.mkdir(parents=True)
    (attempt / "layout.yaml").write_text("layout: 1\n")
    (attempt / "origins.json").write_text('{"keys": {}}')
    job = {"uuid": "u", "attempt": 1, "argv": ["python", "-m", "trainers.grpo", "--attempt", str(attempt)]}
    rundir.write_json(str(attempt / "job.json"), job)
    rundir.write_json(str(attempt / "submitted.json"), {"job_id": "7"})
    rundir.write_json(str(attempt / "slurm.json"), {"job_id": 7, "restart": 0})
    return attempt


def test_the_first_start_has_the_folder_that_was_submitted(tmp_path: Path) -> None:
    attempt = submitted(tmp_path)
    assert folder_of_start(str(attempt), 7, 0) == str(attempt)
    assert not (attempt / "end.json").exists()
    (attempt / "slurm.json").unlink()
    assert folder_of_start(str(attempt), 7, 1) == str(attempt)


def test_later_starts_have_folders_of_their_own(tmp_path: Path) -> None:
    attempt = submitted(tmp_path)
    second = Path(folder_of_start(str(attempt), 7, 1))
    assert second.name == "02"
    assert (rundir.read_json(str(attempt / "end.json")) or {})["outcome"] == "lost"
    job = rundir.read_json(str(second / "job.json")) or {}
    assert (job["attempt"], job["requeue_of"], job["uuid"]) == (2, 1, "u")
    assert job["argv"][-1] == str(second)
    assert (second / "layout.yaml").read_text() == "layout: 1\n"
    assert (second / "origins.json").exists(), "the layout's settings are from where they were"
    assert rundir.read_json(str(second / "submitted.json")) == {"job_id": "7"}, "known before the start says more"
    rundir.write_json(str(second / "slurm.json"), {"job_id": 7, "restart": 1})
    rundir.write_end(str(second), "cancelled", 143, "requeued")
    (tmp_path / "attempts" / "03").mkdir()  # a resubmission took this number meanwhile
    third = Path(folder_of_start(str(attempt), 7, 2))
    assert third.name == "04"
    assert (rundir.read_json(str(second / "end.json")) or {})["outcome"] == "cancelled"
    assert not (tmp_path / "attempts" / "03" / "end.json").exists()


def test_a_start_that_died_with_a_node_is_closed_with_its_name(tmp_path: Path) -> None:
    attempt = submitted(tmp_path)
    rundir.write_json(str(attempt / "slurm.json"), {"job_id": 7, "restart": 0, "nodes": ["n1.site", "n2.site"]})
    for node, last in (("n1", 400.0), ("n2", 120.0)):
        (attempt / f"gpu-{node}.jsonl").write_text(f'{{"t":{last},"host":"{node}"}}\n')
    folder_of_start(str(attempt), 7, 1)
    end = rundir.read_json(str(attempt / "end.json")) or {}
    assert (end["outcome"], end["bad_nodes"]) == ("lost", {"n2.site": "node failure"})
    assert end["reason"] == "node failure on n2.site; Slurm started the job again"


def test_private_variables_are_read_as_text_and_only_if_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets"
    path.write_text("# note\nHF_TOKEN=abc\nexport B=\"x y\"\n C='$(touch no)' \nnonsense\n1A=x\nD=a=b\n")
    path.chmod(0o600)
    assert read_private_file(str(path)) == {"HF_TOKEN": "abc", "B": "x y", "C": "$(touch no)", "D": "a=b"}
    edited = '\ufeffWANDB_API_KEY=k#1\nexport HF_TOKEN=hf_1  # of the team\nA=\'x # y\' # z\nB="a" # "b"\nC= # none\n'
    path.write_text(edited, newline="\r\n")
    assert read_private_file(str(path)) == {
        "WANDB_API_KEY": "k#1", "HF_TOKEN": "hf_1", "A": "x # y", "B": "a", "C": "",
    }  # fmt: skip
    path.write_text("HF_TOKEN=abc\n")
    (tmp_path / "env").write_text("A=1\u2028B=2\x0cC=3\n")
    assert read_environment(str(tmp_path / "env")) == {"A": "1\u2028B=2\x0cC=3"}
    monkeypatch.setenv("RLTUI_ENV_FILE", str(path))
    environment = attempt_environment(str(tmp_path), {"uuid": "u", "code": "/code"})
    assert (environment["HF_TOKEN"], environment["RLTUI_ATTEMPT"]) == ("abc", "u")
    path.chmod(0o640)
    with pytest.raises(EnvironmentFileError, match="chmod 600"):
        attempt_environment(str(tmp_path), {"uuid": "u", "code": "/code"})
    with pytest.raises(EnvironmentFileError, match="cannot be read: No such file"):
        read_private_file(str(tmp_path / "none"))


def test_a_node_without_the_users_own_file_says_so(tmp_path: Path) -> None:
    attempt = submitted(tmp_path)
    (attempt / ray_nodes.FOLDER).mkdir()
    words = ["--attempt", str(attempt), "--head", "127.0.0.1:1", "--folder", str(tmp_path), "--job", "7", "--cpus", "1"]
    environment = {**os.environ, "RLTUI_ENV_FILE": str(tmp_path / "none"), "SLURMD_NODENAME": "n2"}
    argv = [sys.executable, "-m", "rltui.onnode.ray_nodes", *words]
    assert subprocess.run(argv, stdin=subprocess.DEVNULL, env=environment, timeout=60).returncode == 1
    assert "cannot be read: No such file" in ray_nodes.failed_agents(str(attempt), ["n2"])["n2"]


def test_a_users_own_file_sets_path_and_preload_but_not_what_finds_and_guards_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, held = tmp_path / "secrets", {"PYTHONPATH": "/code", "RLTUI_ATTEMPT": "u", "RAY_AUTH_MODE": "token"}
    users = {"PATH": "/opt/mine:/bin", "LD_PRELOAD": "/opt/libtcmalloc.so"}
    path.write_text("".join(f"{name}={value}\n" for name, value in users.items()) + "RAY_AUTH_MODE=disabled\n")
    with path.open("a") as stream:
        stream.write("PYTHONPATH=/elsewhere\nRLTUI_ATTEMPT=other\nRAY_ADDRESS=10.0.0.1:6379\n")
    path.chmod(0o600)
    monkeypatch.setenv("RLTUI_ENV_FILE", str(path))
    environment = attempt_environment(str(tmp_path), {"uuid": "u", "code": "/code"})
    ray = ray_process.RayProcess(ray_process.RaySpec("python3", str(tmp_path), "u", 1, 0), environment)
    assert {name: ray.environment[name] for name in (*users, *held)} == {**users, **held}
    assert "RAY_ADDRESS" not in ray.environment


def test_folders_that_killed_attempts_left_go_and_live_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = f"rltui-{os.getuid()}-"
    for name in (mine + "aaaaaaaa", mine + "bbbbbbbb", mine + "cccccccc", "rltui-1-dddddddd", "other"):
        (tmp_path / name / "session").mkdir(parents=True)
        if name != mine + "cccccccc":
            os.utime(tmp_path / name, (0, 0))
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "RLTUI_ATTEMPT": "bbbbbbbb" + "0" * 24}) as live:
        await_that(lambda: processes.by_attempt("bbbbbbbb" + "0" * 24), "the kernel shows its environment")
        ray_process.remove_stale_folders(str(tmp_path / "rltui-1-x"))
        live.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [mine + "bbbbbbbb", mine + "cccccccc", "rltui-1-dddddddd", "other"]
    )


def test_the_other_nodes_have_as_long_as_the_head_and_five_minutes_at_least() -> None:
    assert rendezvous_s(1, 120.0) == rendezvous_s(1, 30.0) == 302.0
    assert rendezvous_s(100, 900.0) == 1100.0


def test_a_new_attempt_has_the_users_variables_not_those_of_what_decided_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = tmp_path / "runs" / "r1" / "attempts" / "01"
    attempt.mkdir(parents=True)
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nenv > "$3/seen"\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("RLTUI_CACHE_DIR", "/scratch/me")
    monkeypatch.delenv("RLTUI_STATE_DIR", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert hands_off.start(str(attempt)).wait() == 0
    seen = dict(line.split("=", 1) for line in (attempt / "seen").read_text().splitlines() if "=" in line)
    for name in set(os.environ) - set(seen):
        monkeypatch.delenv(name)
    for name, value in seen.items():
        monkeypatch.setenv(name, value)
    assert (paths.state_dir(), paths.cache_dir()) == (tmp_path / "runs/.hands-off",) * 2
    environment = attempt_environment(str(attempt), {"uuid": "u", "code": "/code"})
    assert environment["RLTUI_CACHE_DIR"] == "/scratch/me"
    assert not {"RLTUI_STATE_DIR", "RLTUI_DECIDER_DIR", "SLURM_JOB_ID"} & set(environment)
