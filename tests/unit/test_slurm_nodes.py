"""Nodes and partitions as scontrol shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltui.cluster.slurm.nodes import read_gpus, read_node_state, read_nodes, read_partitions

NODES = """\
NodeName=node1 Arch=x86_64 CPUAlloc=32 CPUEfctv=32 CPUTot=32 AvailableFeatures=h100,ib ActiveFeatures=h100,ib \
Gres=gpu:h100:4(S:0-1),nvme:1 GresDrain=N/A GresUsed=gpu:h100:3(IDX:0,2-3),nvme:0 OS=Linux 6.1 #1 SMP \
RealMemory=64000 State=MIXED+DRAIN ThreadsPerCore=1 Partitions=gpu,debug \
CfgTRES=cpu=32,gres/gpu=4 AllocTRES=cpu=3,gres/gpu=3 \
Reason=GPU 2: Xid 79 State=IDLE Gres=gpu:900 [root@2026-11-22T01:00:00]
NodeName=node2 CPUTot=64 Gres=(null) AvailableFeatures=(null) RealMemory=1024 State=DOWN*+NOT_RESPONDING Partitions=low
NodeName=node3 CPUTot=8 Gres=gpu:8 RealMemory=0 State=IDLE~ AllocTRES=cpu=1,gres/gpu=2 Reason=none
NodeName=bad;name State=IDLE
"""


def test_nodes_are_read_and_nobodys_words_pass_for_a_state() -> None:
    first, second, third = read_nodes(NODES)
    assert (first.state, first.flags, first.is_usable) == ("mixed", ("drain",), False)
    assert (first.gpu, first.gpus, first.gpus_used, first.cpus, first.memory_gib) == ("h100", 4, 3, 32, 62.5)
    assert first.reason == "GPU 2: Xid 79 State=IDLE Gres=gpu:900"
    assert (first.partitions, first.features) == (("gpu", "debug"), ("h100", "ib"))
    assert (second.state, second.flags, second.gpus, second.features) == ("down", ("not_responding",), 0, ())
    assert (third.state, third.flags, third.gpu, third.gpus, third.gpus_used) == ("idle", ("powered_down",), "", 8, 2)
    assert third.reason == ""


def test_a_node_with_gpus_of_two_types_is_counted_by_the_one_a_job_would_get() -> None:
    told = "NodeName=n1 Gres=gpu:v100:2,gpu:a100:4 GresUsed=gpu:v100:2(IDX:0-1),gpu:a100:1(IDX:2) State=MIXED"
    [node] = read_nodes(told)
    assert (node.gpu, node.gpus, node.gpus_used) == ("a100", 4, 1)
    [node] = read_nodes("NodeName=n1 Gres=gpu:3090:8 State=MIXED AllocTRES=cpu=4,gres/gpu=3,gres/gpu:3090=3")
    assert (node.gpu, node.gpus, node.gpus_used) == ("3090", 8, 3)


def test_what_scontrol_writes_behind_a_reason_is_no_part_of_it() -> None:
    told = (
        "NodeName=n1 State=IDLE+DRAIN Reason=ask [bob@site.org] first [root@1763686800] Comment=loan ReservationName=m"
    )
    assert read_nodes(told)[0].reason == "ask [bob@site.org] first"


@pytest.mark.parametrize("state", ["IDLE+MAINTENANCE+RESERVED", "MIXED+MAINTENANCE", "IDLE+INVALID_REG", "MAINT"])
def test_a_node_in_maintenance_is_not_offered(state: str) -> None:
    assert not read_nodes(f"NodeName=n1 Gres=gpu:8 State={state}")[0].is_usable


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", ("idle", ())),
        ("ALLOCATED+DRAIN", ("allocated", ("drain",))),
        ("drained", ("idle", ("drain",))),
        ("draining@", ("mixed", ("drain", "reboot_requested"))),
        ("MIXED+PLANNED", ("mixed", ("planned",))),
        ("IDLE+COMPLETING", ("idle", ("completing",))),
        ("down*", ("down", ("not_responding",))),
        ("RESERVED", ("idle", ("reserved",))),
        ("", ("unknown", ())),
    ],
)
def test_states_of_nodes_are_read(text: str, state: tuple[str, tuple[str, ...]]) -> None:
    assert read_node_state(text) == state


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:h100:4", ("h100", 4)),
        ("gpu:8", ("", 8)),
        ("gpu:a100_1g.5gb:7(S:0),gpu:a100:1", ("a100", 1)),
        ("gpu:1g.10gb:7,gpu:3g.40gb:2", ("1g.10gb", 7)),
        ("gpu:2080ti:2(S:0),gpu:3090:4(S:1)", ("3090", 4)),
        ("gpu:3090:0,gpu:1080ti:8", ("1080ti", 8)),
        ("shard:16,gpu:a100:4,shard:a100:16", ("a100", 4)),
        ("(null)", ("", 0)),
        ("nvme:2,gpu:h200:8(S:0-1)", ("h200", 8)),
        ("gpu:h100:0(IDX:N/A)", ("h100", 0)),
    ],
)
def test_gpus_are_counted(text: str, gpus: tuple[str, int]) -> None:
    assert read_gpus(text) == gpus


PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES DefaultTime=01:00:00 MaxNodes=UNLIMITED \
MaxTime=2-00:00:00 Nodes=node[1-3] State=UP
PartitionName=debug AllowAccounts=a,b AllowQos=normal Default=NO DefaultTime=NONE MaxNodes=1 MaxTime=UNLIMITED \
State=DRAIN
"""


def test_partitions_are_read() -> None:
    gpu, debug = read_partitions(PARTITIONS)
    assert (gpu.is_default, gpu.is_up, gpu.max_time_s) == (True, True, 172800)
    assert (gpu.max_nodes, gpu.accounts, gpu.qos) == (None, (), ())
    assert (debug.is_default, debug.is_up, debug.max_time_s) == (False, False, None)
    assert (debug.max_nodes, debug.accounts, debug.qos) == (1, ("a", "b"), ("normal",))


@given(st.text(max_size=200))
def test_any_text_is_read_as_nodes(text: str) -> None:
    read_nodes("NodeName=" + text)
    read_partitions("PartitionName=" + text)
