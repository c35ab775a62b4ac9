"""What doctor makes of disks without a count of inodes, and of nodes without the tools to ask with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rltui.cluster.facts import ClusterFacts, PartitionFacts
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import Profile
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import Completed, Hello
from rltui.service.doctor import REACH
from rltui.service.doctor_checks import ClusterUnderTest
from rltui.service.doctor_links import NEEDED, _partition, check_python, check_run_root, python_words
from rltui.service.doctor_nodes import ON_NODE, TORCH, check_nodes


class Root:
    path = "/runs"


class Answering:
    """A relay on which every program says the same."""

    slurm_cluster = ""

    def __init__(self, out: str) -> None:
        self.out = out
        self.environments: list[dict[str, str]] = []

    def run(self, argv: list[str], *, env: dict[str, str] | None = None, **_: object) -> Completed:
        self.environments += [env or {}] if "srun" in argv else []
        return Completed(0, self.out, "")

    def put(self, *_: object, **__: object) -> None: ...


def under_test(relay: Answering) -> ClusterUnderTest:
    hello = Hello(1, "3.11", "login", "alice", 1, "/home/alice", 2, 0.0)
    profile = Profile(name="alps", env={"https_proxy": "http://proxy:3128"})
    return ClusterUnderTest(profile=profile, relay=relay, hello=hello, root=Root())  # type: ignore[arg-type]


@pytest.mark.parametrize(("total", "state"), [("0", "ok"), ("1000", "warning")])
def test_a_disk_that_does_not_count_inodes_has_not_run_out_of_them(total: str, state: str) -> None:
    relay = Answering(f"free_kib=999999999\ntotal_kib=999999999\nfree_files=0\ntotal_files={total}\n")
    assert [check.state for check in check_run_root(under_test(relay))] == [state]


def test_a_node_that_cannot_ask_does_not_count_as_one_without_internet() -> None:
    relay = Answering("host=n1\nsees=yes\n")
    found = {check.name: check.state for check in check_nodes(under_test(relay), lambda _: True)}
    assert found["internet"] == "skipped"
    assert relay.environments == [{"https_proxy": "http://proxy:3128"}]


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ("torch=2.13.0+cpu None no", "ok", "CPUs; attention by torch's kernels, sample by sample"),
        ("torch=2.13.0 13.0 yes sm_80 sm_90\ncapability=9.0", "ok", "sm_80 sm_90; attention by FlashAttention in fp16"),
        ("torch=2.13.0 13.0 no sm_80 sm_90\ncapability=8.6", "ok", "sm_90; attention by torch's kernels"),
        ("torch=2.13.0 13.0 no sm_80 sm_90\ncapability=7.0", "warning", "2.13.0, CUDA 13.0"),
    ],
)
def test_a_node_says_what_its_torch_was_built_for_and_how_it_attends(facts: str, state: str, said: str) -> None:
    found = {check.name: check for check in check_nodes(under_test(Answering(f"host=n1\n{facts}\n")), lambda _: True)}
    assert found["torch"].state == state
    assert said in found["torch"].found


def test_the_trainers_python_answers_for_its_torch() -> None:
    words = python_words(Profile(name="here", python=sys.executable), TORCH)
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("torch=2.")
    assert done.stdout.split()[2] in ("yes", "no")


@pytest.mark.parametrize(
    ("tool", "code", "said"),
    [("", 0, ""), ("curl", 0, "internet=yes"), ("curl", 6, "internet=no"), ("python3", 1, "internet=no")],
)
def test_a_node_says_what_it_could_find_out(tmp_path: Path, tool: str, code: int, said: str) -> None:
    for name in ("uname", "cat", "date", "df", "awk", "head", "grep", "sh", "rm"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    timeout = tmp_path / "timeout"
    timeout.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    timeout.chmod(0o700)
    if tool:
        (tmp_path / tool).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / tool).chmod(0o700)
    argv = ["/bin/sh", "-c", ON_NODE, "sh", str(tmp_path), "mark"]
    done = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=30)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("internet=")] == ([said] if said else [])


@pytest.mark.parametrize(("version", "state"), [("None", "warning"), ("'12.8'", "ok")])
def test_a_torch_without_cuda_is_not_well_where_nodes_have_gpus(tmp_path: Path, version: str, state: str) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise SystemExit('torch is not to be imported: that takes seconds')")
    (torch / "version.py").write_text(f"__version__ = '2.9.0'\ncuda: Optional[str] = {version}\nhip = None\n")
    names = {"torch": "2.9.0", **dict.fromkeys(NEEDED, "1.0")}
    for name, number in names.items():
        info = tmp_path / f"{name}-{number}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    env = {"PYTHONPATH": str(tmp_path)}
    profile = Profile(name="alps", python=sys.executable, gpu="H100-SXM-80GB", gpus_per_node=4, env=env)
    relay = RelayClient(LocalTransport())
    try:
        hello = relay.hello()
        found = list(check_python(ClusterUnderTest(profile=profile, relay=relay, hello=hello, root=Root())))  # type: ignore[arg-type]
    finally:
        relay.close()
    assert [check.state for check in found] == [state]


def test_a_group_whose_name_has_a_blank_is_one_group(tmp_path: Path) -> None:
    for name, says in (("id", "staff domain users"), ("stat", "750 domain users")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def said(group: str) -> str:
        argv = ["sh", "-c", REACH, "sh", group, "/home/alice/runs"]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    assert said("domain users") == ""
    assert said("users domain").startswith(
        "you are not in group users domain\nusers domain cannot pass /home/alice (750"
    )


@pytest.mark.parametrize(("seconds", "said"), [(1800.0, "jobs up to 00:30:00"), (None, "no time limit")])
def test_a_partition_of_half_an_hour_is_not_one_of_no_hours(seconds: float | None, said: str) -> None:
    facts = ClusterFacts(partitions=(PartitionFacts(name="debug", is_default=True, max_time_s=seconds),))
    assert _partition(under_test(Answering("")), facts).found.endswith(said)
