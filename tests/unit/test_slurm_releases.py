"""What 23.11, 24.05, 24.11 and 25.05 answer, by what their sources write: new keys, new words, new refusals."""

from __future__ import annotations

import pytest

from rltui.cluster.relay_types import Completed
from rltui.cluster.slurm.job_details import read_jobs
from rltui.cluster.slurm.nodes import read_nodes, read_partitions, read_reservations
from rltui.cluster.slurm.queries import ACCOUNTING_FIELDS, QUEUE_FIELDS, read_accounting, read_queue
from rltui.cluster.slurm.reasons import explain_reason
from rltui.cluster.slurm.replies import read_submission, read_trouble
from rltui.cluster.slurm.states import read_state
from rltui.cluster.slurm.submitting import read_test

MARK = "^c0ffee^"

JOB = (
    "JobId=7 ArrayJobId=5 ArrayTaskId=12 {array}JobName=grpo UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A "
    "Priority=1 Nice=0 Account=ml QOS=normal JobState=RUNNING Reason=None {failed}Dependency=(null) "
    "Requeue=0 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:01:00 TimeLimit=01:00:00 TimeMin=N/A "
    "SubmitTime=1763686800 EligibleTime=1763686800 AccrueTime=1763686800 StartTime=1763686801 EndTime=1763690401 "
    "Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=1763686801 Scheduler=Main Partition=gpu "
    "AllocNode:Sid=login:9 ReqNodeList=(null) ExcNodeList=(null) NodeList=node[1-2] BatchHost=node1 {manager}"
    "NumNodes=2 NumCPUs=8 NumTasks=2 CPUs/Task=4 ReqB:S:C:T=0:0:*:* ReqTRES=cpu=8,mem=64G,node=2,billing=8,gres/gpu=8 "
    "AllocTRES=cpu=8,mem=64G,node=2,billing=8,gres/gpu=8,gres/gpu:h100=8 Socks/Node=* NtasksPerN:B:S:C=1:0:*:* "
    "CoreSpec=* MinCPUsNode=4 MinMemoryNode=32G MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 "
    "OverSubscribe=NO Contiguous=0 Licenses=(null) {licences}Network=(null) Command=/home/alice/run.sh a b "
    "WorkDir=/home/alice {comment}StdErr=/home/alice/%A_%b.err StdIn=/dev/null StdOut=/home/alice/%A_%a.out "
    "{behind}TresPerNode=gres/gpu:h100:4{task}\n"
)
JOBS = {
    "23.11": JOB.format(
        array="", failed="", manager="", licences="", comment="Comment=c Extra=StdOut=/x ", behind="Power= ", task=""
    ),
    "24.05": JOB.format(
        array="ArrayTaskThrottle=2 ", failed="FailedNode=node9 ", manager="StepMgrEnabled=Yes ", licences="",
        comment="AdminComment=a  Comment=c  ", behind="", task=" TresPerTask=cpu=4",
    ),
    "24.11": JOB.format(
        array="ArrayTaskThrottle=2 ", failed="", manager="", licences="", comment="Comment=c  ", behind="", task=""
    ),
    "25.05": JOB.format(
        array="ArrayTaskThrottle=2 ", failed="", manager="StepMgrEnabled=Yes ", licences="LicensesAlloc=(null) ",
        comment="SystemComment=s  Comment=c  Extra=e  ", behind="", task=" TresPerTask=cpu=4",
    ),
}  # fmt: skip

NODE = (
    "NodeName=node1 Arch=x86_64 CoresPerSocket=16 CPUAlloc=8 CPUEfctv=30 CPUTot=32 CPULoad=1.00 "
    "AvailableFeatures=ib ActiveFeatures=ib Gres=gpu:h100:4(S:0-1) GresDrain=N/A "
    "GresUsed=gpu:h100:3(IDX:0-2) NodeAddr=n1 NodeHostName=node1 Version={version} OS=Linux 6 "
    "RealMemory=64000 AllocMem=0 FreeMem=1 Sockets=2 Boards=1 {cores}State={state} ThreadsPerCore=1 TmpDisk=0 "
    "Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu BootTime=1 SlurmdStartTime=1 LastBusyTime=1 {resume}"
    "CfgTRES=cpu=30,gres/gpu=4 AllocTRES=cpu=8,gres/gpu=3 {power}{reason}{behind}\n"
)
WHY = "Reason=Xid 79 [root@1763686800]"
NODES = {
    "23.11": NODE.format(
        version="23.11.11", cores="", state="MIXED+DRAIN", resume="ResumeAfterTime=None ", reason=WHY,
        power="CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/a ", behind=" Comment=c Extra=State=IDLE",
    ),
    "24.05": NODE.format(
        version="24.05.8", cores="RestrictedCoresPerGPU=2(0-7) ", state="MIXED+DRAIN+BLOCKED",
        resume="ResumeAfterTime=None ", power="CurrentWatts=0 AveWatts=0 ", reason=WHY, behind=" InstanceId=i",
    ),
    "24.11": NODE.format(
        version="24.11.7", cores="", state="MIXED+DRAIN", resume="ResumeAfterTime=None ",
        power="CurrentWatts=0 AveWatts=0 ", reason=WHY, behind=" ReservationName=maint",
    ),
    "25.05": NODE.format(
        version="25.05.8", cores="", state="MIXED+DRAIN", resume="ResumeAfterTime=None ",
        power="CurrentWatts=0 AveWatts=0 ", reason=WHY, behind=" TLSCertTokenSet=N TLSCertLastRenewal=1 Topology=b:s1",
    ),
}  # fmt: skip

PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ml AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO {topo}GraceTime=0 Hidden=NO MaxNodes=4 "
    "MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED Nodes=node[1-4] "
    "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF "
    "State=UP TotalCPUs=8 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null){behind}\n"
)
PARTITIONS = {
    "23.11": PARTITION.format(topo="", behind=" PowerDownOnIdle=NO"),
    "24.05": PARTITION.format(topo="ExclusiveTopo=NO ", behind=""),
    "25.05": PARTITION.format(topo="ExclusiveTopo=YES ", behind=" Topology=block"),
}


@pytest.mark.parametrize("release", JOBS)
def test_a_job_is_read_the_same_whatever_new_keys_stand_around(release: str) -> None:
    [one] = read_jobs(JOBS[release])
    assert (one.job.job_id, one.job.state, one.job.user, one.uid, one.job.restarts) == (
        "5_12",
        "running",
        "alice",
        "2001",
        1,
    )
    assert (one.job.submitted_at, one.job.started_at, one.job.time_limit_s) == (1763686800.0, 1763686801.0, 3600.0)
    assert (one.nodes, one.gpus, one.gpu, one.folder) == (2, 8, "h100", "/home/alice")
    assert (one.command, one.words) == ("/home/alice/run.sh", ("a", "b"))
    assert one.logs == ("/home/alice/5_12.out", "/home/alice/5_2.err")


@pytest.mark.parametrize("release", NODES)
def test_a_node_is_read_the_same(release: str) -> None:
    [node] = read_nodes(NODES[release])
    assert (node.state, "drain" in node.flags, node.is_usable) == ("mixed", True, False)
    assert (node.gpu, node.gpus, node.gpus_used, node.cpus, node.reason) == ("h100", 4, 3, 30, "Xid 79")


@pytest.mark.parametrize("release", PARTITIONS)
def test_a_partition_is_read_the_same(release: str) -> None:
    [one] = read_partitions(PARTITIONS[release])
    assert (one.name, one.is_default, one.is_up, one.max_nodes, one.accounts) == ("gpu", True, True, 4, ("ml",))
    assert one.max_time_s == 172800.0


def test_nodes_of_other_clusters_are_not_offered() -> None:
    [node] = read_nodes("NodeName=n1 Gres=gpu:8 State=EXTERNAL")
    assert not node.is_usable


def test_lists_are_asked_for_fields_that_every_release_has() -> None:
    gone = {"Reserved", "ResvCPU", "ResvCPURAW", "Power"}  # renamed or removed since 22.05
    assert not gone & {*ACCOUNTING_FIELDS.values(), *(name for name, _ in QUEUE_FIELDS.values())}
    row = {"id": "5", "state": "RUNNING", "uid": "2001", "submit": "1763686800", "count": "2", "nodes": "node[1-2]"}
    [(uid, job)] = read_queue("".join(row.get(name, "") + MARK for name in QUEUE_FIELDS) + "\n", MARK)
    assert (uid, job.job_id, job.state, job.nodes) == ("2001", "5", "running", ("node1", "node2"))
    row |= {"state": "CANCELLED by 0", "exit": "0:15"}
    [(_, ended)] = read_accounting("".join(row.get(name, "") + MARK for name in ACCOUNTING_FIELDS) + "\n", MARK)
    assert (ended.state, ended.cancelled_by, ended.signal) == ("cancelled", "0", 15)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("MaxPoweredUpNodes", "wait"),
        ("MpiPortsBusy", "wait"),
        ("ReservationInvalid", "dead"),
        ("RaisedSignal", "dead"),
        ("TimeLimit", "dead"),
        ("Constraints", "never"),
        ("MaxGRESRunMinsPerUser", "own"),
        ("MaxNodeRunMinsPerAccount", "shared"),
        ("AssocGrpJobsLimit", "shared"),
        ("QOSGrpJobsLimit", "shared"),
    ],
)
def test_reasons_since_23_11_are_explained(reason: str, kind: str) -> None:
    found = explain_reason(reason)
    assert found.kind == kind
    assert "The scheduler says" not in found.sentence


@pytest.mark.parametrize("word", ["LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL", "UPDATE_DB", "EXPEDITING"])
def test_states_since_23_11_are_known(word: str) -> None:
    assert read_state(word).state != "unknown"
    assert read_state(f"COMPLETED+{word}").state in ("completed", "completing")


SUBMIT = "sbatch: error: Batch job submission failed: "
REFUSED = [
    "Licenses currently unavailable",
    "Invalid QOS specification, relative QOS can only be used in a single partition per cluster.",
    "Job cannot be submitted without the current working directory specified.",
    "Invalid extra constraints specification",
    "Requested topology configuration is not available",
    "Preemption is required but is disabled on this system",
    "RestrictedCoresPerGPU: Not enough unique cores per GPU",
    "Job --batch option is invalid or not a subset of --constraint",
    "Max powered up nodes reached",
    "Invalid generic resource (gres) specification",
    "Requested node configuration is not available",
]
UNKNOWN = [
    "Message send failure",
    "Communication shutdown failure",
    "Unexpected missing socket error",
    "Unable to process incoming file descriptor",
    "Unable to process outgoing file descriptor",
    "Unable to process incoming and outgoing file descriptors",
    "Authentication credential expired",
    "Cannot unpack credential",
    "Resource temporarily unavailable",
    "Interrupted system call",
    "Unable to contact slurm controller (shutdown failure)",
]
"""The controller may have taken the job: what failed is the conversation."""


@pytest.mark.parametrize("said", REFUSED)
def test_refusals_of_newer_releases_are_certain(said: str) -> None:
    trouble = read_trouble(SUBMIT + said + "\n", 1, "sbatch")
    assert (trouble.kind, trouble.nothing_done) == ("refused", True)
    assert trouble.sentence == said.rstrip("\n")


@pytest.mark.parametrize("said", UNKNOWN)
def test_a_conversation_that_broke_is_no_refusal(said: str) -> None:
    assert not read_trouble(SUBMIT + said + "\n", 1, "sbatch").nothing_done


@pytest.mark.parametrize("said", ["please retry momentarily", "please retry later"])
def test_both_ways_of_saying_too_often_are_known(said: str) -> None:
    trouble = read_trouble(f"squeue: error: Rate limit exceeded, {said}", 1, "squeue")
    assert (trouble.kind, trouble.nothing_done) == ("rate", True)


@pytest.mark.parametrize(
    ("tool", "said", "kind"),
    [
        ("scancel", "scancel: error: Kill job error on job id 5: Invalid job id specified", "gone"),
        ("scancel", "scancel: error: Kill job error on job id 5: Job/step already completing or completed", "gone"),
        ("scancel", "scancel: error: Kill job error on job id 5: Access/permission denied", "refused"),
        ("scontrol", "Job has already finished for job 5", "gone"),
        ("scontrol", "Job can not be altered now, try again later for job 5", "refused"),
        ("scontrol", "Job is no longer pending execution for job 5", "refused"),
        ("scontrol", "Job update not available right now, the DB index is being set, try again in a bit", "refused"),
        ("sacct", "sacct: error: Unable to connect to database", "database"),
    ],
)
def test_changes_and_questions_that_fail_are_told_apart(tool: str, said: str, kind: str) -> None:
    assert read_trouble(said, 1, tool).kind == kind


def test_a_submission_and_its_estimate_are_read() -> None:
    assert read_submission("5;alpha\n") == "5"
    said = "sbatch: Job 9 to start at 1763686800 using 8 processors on nodes node[1-2] in partition gpu\n"
    verdict = read_test(Completed(rc=0, out="", err=said))
    assert (verdict.accepted, verdict.nodes, verdict.partition) == (True, ("node1", "node2"), "gpu")


RESERVATIONS = """\
ReservationName=rl StartTime=1763686800 EndTime=1763690400 Duration=01:00:00 Nodes=node[1-2] NodeCnt=2 CoreCnt=64 \
Features=(null) PartitionName=gpu Flags=SPEC_NODES TRES=cpu=64 Users=alice,bob Groups=(null) Accounts=ml \
Licenses=(null) State=ACTIVE BurstBuffer=(null) {power}MaxStartDelay=(null){behind}
ReservationName=maint StartTime=1763600000 EndTime=1763690400 Duration=1-00:00:00 Nodes=ALL NodeCnt=4 CoreCnt=128 \
Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS TRES=cpu=128 Users=root Groups=(null) Accounts=(null) \
Licenses=(null) State=INACTIVE BurstBuffer=(null) {power}MaxStartDelay=(null){behind}
"""


@pytest.mark.parametrize(("power", "behind"), [("Watts=n/a ", ""), ("", ""), ("", " Comment=ask Users=mallory")])
def test_reservations_are_read_the_same(power: str, behind: str) -> None:
    first, second = read_reservations(RESERVATIONS.format(power=power, behind=behind))
    assert (first.name, first.is_maintenance, first.is_active, first.nodes) == ("maint", True, False, "ALL")
    assert (second.name, second.nodes, second.node_count, second.is_active) == ("rl", "node[1-2]", 2, True)
    assert (second.users, second.accounts, second.groups) == (("alice", "bob"), ("ml",), ())
    assert (second.starts_at, second.ends_at) == (1763686800.0, 1763690400.0)
    assert read_reservations("No reservations in the system\n") == ()
