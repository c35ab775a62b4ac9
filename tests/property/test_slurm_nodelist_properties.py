"""Host lists: ours against Slurm's own, ten thousand times in both directions, and any text against a crash."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltui.cluster.slurm.nodelist import NodeListError, expand, fold, is_host_name, merged, natural_key

if TYPE_CHECKING:
    from pathlib import Path

TRIALS = 10_000
BATCH = 200
BETWEEN = "then-comes"
MINIMAL = "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"


@pytest.fixture(scope="session")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with which scontrol runs; no daemon is asked."""
    if shutil.which("scontrol") is None:
        pytest.skip("needs Debian's slurm-client")
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text(MINIMAL)
    return path


def slurm_expands(lists: Sequence[str], conf: Path) -> list[tuple[str, ...]]:
    """What ``scontrol show hostnames`` makes of each list; one process for a batch of them."""
    joined = f",{BETWEEN},".join(lists)
    done = subprocess.run(
        ["scontrol", "show", "hostnames", joined],
        capture_output=True,
        text=True,
        env={"SLURM_CONF": str(conf)},
        check=True,
    )
    assert not done.stderr, done.stderr
    return [tuple(part.split()) for part in done.stdout.split(BETWEEN)]


def number(chance: random.Random) -> str:
    value = str(chance.choice([0, 7, 9, 10, 98, 99, 100, 998, chance.randrange(100_000)]))
    return value.zfill(chance.choice([0, 0, 2, 3, 6]))


def bracket(chance: random.Random) -> str:
    pieces = []
    for _ in range(chance.randint(1, 4)):
        low = number(chance)
        high = str(int(low) + chance.randrange(12)).zfill(chance.choice([0, len(low)]))
        pieces.append(low if chance.random() < 0.4 else f"{low}-{high}")
    return f"[{','.join(pieces)}]"


def host_list(chance: random.Random) -> str:
    """A list as Slurm 22.05 takes it: names end with their last bracket."""
    names = []
    for _ in range(chance.randint(1, 4)):
        name = chance.choice(["n", "nid", "gpu-a", "r1", "cn.x_", "0", "node"])
        for _ in range(chance.choice([0, 1, 1, 1, 2])):
            name += bracket(chance) + chance.choice(["", "", "c", "-b"])
        names.append(name.rstrip("c-b") if name.endswith(("]c", "]-b")) else name)
    return ",".join(names)


def host_name(chance: random.Random) -> str:
    return chance.choice(["n", "nid", "r2-", "x.y"]) + chance.choice(["", number(chance), number(chance)])


def batches(items: Sequence[str]) -> list[Sequence[str]]:
    return [items[begin : begin + BATCH] for begin in range(0, len(items), BATCH)]


def test_lists_mean_what_they_mean_to_slurm(slurm_conf: Path) -> None:
    chance = random.Random(5)
    for batch in batches([host_list(chance) for _ in range(TRIALS)]):
        for text, names in zip(batch, slurm_expands(batch, slurm_conf), strict=True):
            assert expand(text) == names, text


def test_names_that_are_folded_come_back_from_slurm(slurm_conf: Path) -> None:
    chance = random.Random(6)
    wanted = []
    for _ in range(TRIALS):
        begin, prefix = chance.randrange(2000), chance.choice(["n", "nid0", "a-"])
        row = [f"{prefix}{number:0{chance.choice([1, 4])}d}" for number in range(begin, begin + chance.randrange(1, 8))]
        wanted.append((*row, *(host_name(chance) for _ in range(chance.randrange(4)))))
    for begin in range(0, TRIALS, BATCH):
        batch = wanted[begin : begin + BATCH]
        folded = [fold(names) for names in batch]
        assert slurm_expands(folded, slurm_conf) == batch
        assert [expand(text) for text in folded] == batch


def test_neighbours_are_folded_into_ranges() -> None:
    assert fold([f"nid{number:06d}" for number in (10798, 10869, 10870, 10871)]) == "nid[010798,010869-010871]"
    assert fold(["n9", "n10", "n11"]) == "n[9-11]"
    assert fold(["n09", "n010"]) == "n[09,010]"
    assert fold(["n3", "n1", "n1", "login"]) == "n[3,1,1],login"
    assert fold([]) == ""


def test_what_slurm_2205_refuses_is_read_where_it_has_one_meaning() -> None:
    assert expand("n[1-2]-ib") == ("n1-ib", "n2-ib")
    assert expand("r[1-2]n[01-02].x") == ("r1n01.x", "r1n02.x", "r2n01.x", "r2n02.x")
    assert expand("(null)") == expand("") == expand("None assigned") == ()


REFUSED = (
    *(
        "n[1-2",
        "n1-2]",
        "n[[1-2],3]",
        "n[1,b[2-3]]",
        "n[]",
        "n[3-1]",
        "n[1,,2]",
        "n[a-c]",
        "n[-1]",
        "n[1-2-3]",
        "n[٣-٤]",
    ),
    *("n;reboot", "$(id)", "-n", "n\x1b[1]", "n\0", "n[1-2]\n;x", "../x", "ñ1", "a" * 300),
    *("n[1-65537]", "n[1-999][1-999]", "n" + "[0-9]" * 10, "n[1-60000],m[1-60000]", "n[1-999999999999999999]"),
)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text[:20]))
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(NodeListError):
        expand(text)


@given(st.text(alphabet="n01[]-,. \n;$é", max_size=40))
def test_any_text_is_a_list_of_safe_names_or_refused(text: str) -> None:
    try:
        names = expand(text)
    except NodeListError:
        return
    assert all(is_host_name(name) for name in names)
    assert expand(fold(names)) == names


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True), max_size=12))
def test_lists_are_merged_without_repeats_in_natural_order(names: list[str]) -> None:
    both = merged(names, names[::-1])
    assert set(both) == set(names)
    assert len(set(both)) == len(both)
    assert list(both) == sorted(both, key=natural_key)
    assert merged(["n10", "n9"], ["n2"]) == ("n2", "n9", "n10")
