from __future__ import annotations

import io
import os
import pwd
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltui.cli.main import main
from rltui.cli.setup import way_to
from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile_files import ProfileFile
from rltui.cluster.profiles import merge_profiles
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, UsageError
from rltui.layout.document import parse
from rltui.service import setup_cluster
from rltui.service.setup_cluster import Site, as_block, gpu_type, look_around, propose, with_block, write_file


def node(name: str, *partitions: str, gpu: str = "h100", gpus: int = 4, **keys: object) -> NodeFacts:
    given = {"cpus": 64, "memory_gib": 512.7, "state": "idle", **keys}
    return NodeFacts(name=name, partitions=partitions, gpu=gpu, gpus=gpus, **given)  # type: ignore[arg-type]


def site(*partitions: PartitionFacts, nodes: tuple[NodeFacts, ...], **keys: object) -> Site:
    accounts = keys.pop("accounts", ())
    return Site(facts=ClusterFacts(partitions=partitions, nodes=nodes, accounts=accounts), **keys)  # type: ignore[arg-type]


GPU = PartitionFacts(name="gpu", max_time_s=86400.0, max_nodes=16)
CPU = PartitionFacts(name="cpu", is_default=True)


def test_the_partition_with_gpus_and_its_limits_are_proposed() -> None:
    found = site(CPU, GPU, nodes=(node("c1", "cpu", gpu="", gpus=0), node("n1", "gpu"), node("n2", "gpu")))
    proposal = propose(found, {"host": "login"})
    assert proposal.values == {
        "host": "login",
        "scheduler": "slurm",
        "partition": "gpu",
        "max_time": "1-00:00:00",
        "max_nodes": 16,
        "gpus_per_node": 4,
        "cpus_per_node": 64,
        "memory_gib": 512.0,
        "gres": "gpu:h100",
        "gpu": "H100-SXM-80GB",
    }
    assert proposal.choices["partition"] == ("gpu", "cpu")


def test_other_clusters_are_named_and_a_federation_is_kept_out_of() -> None:
    found = site(GPU, nodes=(node("n1", "gpu"),), cluster_name="a", other_clusters=("b", "c"))
    proposal = propose(found, {"host": "login"})
    assert "slurm_cluster" not in proposal.values
    assert any("also reaches b, c" in note for note in proposal.notes)
    together = site(GPU, nodes=(node("n1", "gpu"),), cluster_name="a", federation="all")
    assert propose(together, {}).values["slurm_cluster"] == "a"


class Typed(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        """As a terminal."""
        return True


def test_a_name_that_nothing_knows_is_asked_for_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rltui.service.setup_cluster.look_around", lambda _: site(GPU, nodes=(node("n1", "gpu"),)))
    monkeypatch.setattr("rltui.cli.setup.user_file", lambda: tmp_path / "clusters.yaml")
    # the partition is misspelt and mended, the hidden one is meant; so is a card that no table has
    monkeypatch.setattr("sys.stdin", Typed("gpuu\nhidden\nhidden\n\nH1000\nH100-SXM-80GB\n\n\n\nyes\n"))
    assert main(["setup", "alps", "--host", "here"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().err
    assert "The cluster shows you no partition gpuu, but gpu. The same once more takes it all the same." in said
    assert "rltui knows no card H1000; like it: H100-SXM-80GB" in said
    assert "as nodes see it [python3]: " in said
    written = (tmp_path / "clusters.yaml").read_text()
    assert "partition: hidden" in written
    assert "gpu: H100-SXM-80GB" in written
    assert ("python:" in written, "run_root:" in written) == (False, False)


def test_another_partition_brings_its_own_gpus_and_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = PartitionFacts(name="old", max_time_s=3600.0)
    nodes = (node("n1", "gpu"), node("n2", "gpu"), node("n3", "old", gpu="a100", gpus=2))
    monkeypatch.setattr("rltui.service.setup_cluster.look_around", lambda _: site(GPU, old, nodes=nodes))
    monkeypatch.setattr("rltui.cli.setup.user_file", lambda: tmp_path / "clusters.yaml")
    monkeypatch.setattr("sys.stdin", Typed("old\nA100-SXM-40GB\n/runs\n\n\n\n\nyes\n"))
    assert main(["setup", "alps", "--host", "here"]) == 0, capsys.readouterr().err
    written = (tmp_path / "clusters.yaml").read_text()
    for line in ("partition: old", "gres: gpu:a100", "gpus_per_node: 2", "max_time: 0-01:00:00"):
        assert line in written
    assert "max_nodes" not in written


def test_a_default_partition_with_gpus_comes_first() -> None:
    big = PartitionFacts(name="big")
    small = PartitionFacts(name="small", is_default=True)
    found = site(big, small, nodes=(node("n1", "big", gpus=8), node("n2", "small", gpus=1)))
    assert propose(found, {}).values["partition"] == "small"


@pytest.mark.parametrize("closed", [{"is_up": False}, {"accounts": ("others",)}])
def test_a_closed_partition_comes_last(closed: dict[str, object]) -> None:
    shut = PartitionFacts(name="shut", is_default=True, **closed)  # type: ignore[arg-type]
    found = site(shut, GPU, nodes=(node("n1", "shut", gpus=8), node("n2", "gpu")), accounts=("mine",))
    assert propose(found, {}).values["partition"] == "gpu"


def test_the_default_account_comes_first() -> None:
    found = site(GPU, nodes=(node("n", "gpu"),), accounts=("a", "b"), default_account="b")
    proposal = propose(found, {})
    assert proposal.values["account"] == "b"
    assert proposal.choices["account"] == ("b", "a")


def test_most_nodes_decide_and_the_others_are_told_of() -> None:
    nodes = (node("n1", "gpu"), node("n2", "gpu", cpus=48), node("n3", "gpu", gpu="a100", gpus=8))
    proposal = propose(site(GPU, nodes=nodes), {})
    assert proposal.values["gpus_per_node"] == 4
    assert proposal.values["cpus_per_node"] == 48
    assert any("1 with 8 a100" in note for note in proposal.notes)


@pytest.mark.parametrize(
    ("gres", "features", "gpu"),
    [
        ("h100", set(), "H100-SXM-80GB"),
        ("nvidia_h100_80gb_hbm3", set(), "H100-SXM-80GB"),
        ("nvidia_a100-sxm4-40gb", set(), "A100-SXM-40GB"),
        ("", {"ib", "a100-80gb"}, "A100-SXM-80GB"),
        ("a100", {"a100_40gb"}, "A100-SXM-40GB"),
    ],
)
def test_slurms_word_for_a_gpu(gres: str, features: set[str], gpu: str) -> None:
    assert gpu_type(gres, features) == (gpu, ())


def test_a_word_for_several_cards_is_not_guessed() -> None:
    name, candidates = gpu_type("a100", set())
    assert name == ""
    assert len(candidates) > 1
    assert all(candidate.startswith("A100") for candidate in candidates)
    assert gpu_type("", set()) == ("", ())
    assert gpu_type("tpu_v9", set())[0] == ""


def test_no_partition_and_no_slurm() -> None:
    assert any("No partition" in note for note in propose(site(nodes=()), {}).notes)
    with pytest.raises(UsageError, match="no Slurm cluster"):
        propose(Site(), {"host": "h"})
    ray = {"scheduler": "ray", "ray_address": "http://127.0.0.1:8265"}
    proposal = propose(Site(scratch="/scratch/me/", ray_address=ray["ray_address"]), {"host": "h"})
    assert proposal.values == {"host": "h", **ray, "run_root": "/scratch/me/rltui-runs"}


def test_the_proposal_is_a_valid_profile() -> None:
    block = as_block("alps", propose(site(GPU, nodes=(node("n", "gpu"),)), {"host": "login"}).values)
    profiles = merge_profiles([ProfileFile(path="x", kind="user", used=True, text=block, sha256="x")])
    assert not profiles.problems
    assert profiles.get("alps").max_time == "1-00:00:00"


# --- editing the file ---------------------------------------------------------------------------------------------

FILE = """\
# My clusters.
first:  # the old one
  host: a
  env:
    A: "1"

  # a comment inside
  partition: p
# About the second.
second: {host: b}
"""


def test_a_new_cluster_goes_to_the_end_and_nothing_else_changes() -> None:
    assert with_block(FILE, "third", "third:\n  host: c\n") == f"{FILE}\nthird:\n  host: c\n"
    assert with_block("", "x", "x:\n  host: c\n").startswith("# Clusters that rltui knows")
    assert with_block("a: {host: x}", "b", "b: {}\n") == "a: {host: x}\n\nb: {}\n"


def test_an_old_one_is_replaced_in_its_place() -> None:
    changed = with_block(FILE, "first", "first:\n  host: z\n")
    assert changed == "# My clusters.\nfirst:\n  host: z\n# About the second.\nsecond: {host: b}\n"
    assert with_block(FILE, "second", "second:\n  host: z\n").endswith("# About the second.\nsecond:\n  host: z\n")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{first: {host: a}}\n", "new"),
        ("first: {host: a}\n...\n", "new"),
        ("first: {host: a\n", "first"),
        ("? first\n: {host: a}\n", "first"),
    ],
)
def test_a_file_that_cannot_be_edited_by_lines_is_left_alone(text: str, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be edited"):
        with_block(text, name, f"{name}:\n  host: z\n")


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True).filter(lambda name: not name[0].isdigit())


@given(names=st.lists(NAMES, min_size=1, max_size=5, unique=True), data=st.data())
def test_editing_changes_one_cluster_only(names: list[str], data: st.DataObject) -> None:
    text = "".join(f"# about {name}\n{name}:\n  host: h\n\n  bad_nodes:\n  - {{node: n}}\n" for name in names)
    chosen = data.draw(st.sampled_from([*names, "entirely-new"]))
    try:
        changed = with_block(text, chosen, f"{chosen}:\n  host: z\n")
    except UsageError:
        return
    values = parse(changed, "x").values
    assert values[chosen] == {"host": "z"}
    assert {name: values[name] for name in names if name != chosen} == {
        name: value for name, value in parse(text, "x").values.items() if name != chosen
    }
    assert all(f"# about {name}\n" in changed for name in names)


def test_links_and_modes_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles", tmp_path / "clusters.yaml"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["clusters.yaml", "dotfiles"]


# --- the verb -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "way"),
    [
        ("a", {"host": "a", "user": "me", "identity_file": "~/.ssh/site", "proxy_jump": ["gate"]}),
        ("you@b:22", {"host": "b", "user": "you", "port": 22, "identity_file": "~/.ssh/site", "proxy_jump": ["gate"]}),
        ("here", {"transport": "local"}),
    ],
)
def test_a_cluster_is_looked_at_again_by_the_way_that_the_file_knows(host: str, way: dict[str, object]) -> None:
    known = {"host": "a", "user": "me", "identity_file": "~/.ssh/site", "proxy_jump": ["gate"], "partition": "gpu"}
    assert way_to(host, known) == way


def test_a_cluster_that_was_here_and_is_elsewhere_now_is_reached_over_ssh() -> None:
    assert way_to("a", {"transport": "local"}) == {"host": "a"}


def test_an_entry_that_is_none_is_named(capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "clusters.yaml").write_text("lab: {host: a, proxy_jump: 7}\n")
    assert main(["setup", "lab", "--yes", "--replace"]) == 2
    assert "proxy_jump" in capsys.readouterr().err


def test_nobody_there_to_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup"]) == 2
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--host", "-oProxyCommand=x"], ["local", "--host", "here"], ["a b", "--host", "here"]]
)
def test_hostile_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    name = ["--host=-oProxyCommand=x"] if words[0] == "--host" else words
    assert main(["setup", "--yes", *name]) in (2, 3)


@pytest.mark.parametrize(("says", "has_slurm"), [("Could not establish a configuration source", False), ("odd", True)])
def test_slurm_s_tools_without_a_cluster_are_no_slurm(
    says: str, has_slurm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("scontrol", "sinfo", "squeue", "sacctmgr", "sacct"):
        path = tmp_path / tool
        path.write_text(f"#!/bin/sh\necho '{tool}: fatal: {says}' >&2\nexit 1\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    relay = RelayClient(LocalTransport())
    try:
        if has_slurm:
            with pytest.raises(ClusterError, match="odd"):
                look_around(relay)
        else:
            found = look_around(relay)
            assert (found.facts, found.host is not None) == (None, True)
    finally:
        relay.close()


def test_however_many_clusters_there_are_the_controller_is_asked_once_what_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(setup_cluster, "cluster_name", lambda relay: asked.append(relay) or "lab")
    answer = SimpleNamespace(rc=0, out="lab|10.0.0.1\nold|\nnorth|10.0.1.1\nsouth|10.0.2.1\n")
    relay: Any = SimpleNamespace(run=lambda *_, **__: answer)
    assert setup_cluster._other_clusters(relay) == ("north", "south")
    assert asked == [relay]


@pytest.mark.parametrize("is_own", [True, False])
def test_on_the_disk_of_a_project_each_member_has_a_run_root_of_his_own(is_own: bool, tmp_path: Path) -> None:
    disk = tmp_path
    if not is_own and os.getuid():
        disk = Path("/tmp")
    elif not is_own:
        os.chown(disk, 65534, -1)
    script = setup_cluster.LOOK_AROUND
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PROJECT": str(disk)}
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=True, timeout=60)
    name = pwd.getpwuid(os.getuid()).pw_name
    assert f"scratch={disk}{'' if is_own else f'/{name}'}\n" in done.stdout
