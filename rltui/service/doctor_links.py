"""The links behind the login: time, scheduler, disk, Python. Each test yields results and leaves nothing behind."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from rltui.check.live_subject import duration
from rltui.cluster.facts import ClusterFacts
from rltui.cluster.gather_facts import cluster_name, federation, gather_facts
from rltui.cluster.host_facts import HostState, host_states
from rltui.cluster.machines import machines_of
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile, container_of
from rltui.cluster.ray_cluster import RayJobs
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.trusted_server import is_in_the_clear, trust_ray
from rltui.errors import ClusterError
from rltui.layout.settings import Slurm
from rltui.memory.bars import size_words
from rltui.service.doctor_checks import Check, ClusterUnderTest, broken, failed, ok, skipped, warning
from rltui.service.login_facts import container_problems, env_file_problem
from rltui.service.quota import quotas

HELLOS = 5
SLOW_ROUND_TRIP_S = 0.3
SKEW_S, BAD_SKEW_S = 5.0, 300.0
SLOW_QUEUE_S = 5.0
LITTLE_DISK_GIB = 50.0
NEEDED = ("torch", "ray", "deepspeed", "transformers")
USEFUL = ("vllm", "wandb")
PYTHON_TIMEOUT_S = 120.0


def check_round_trip(tested: ClusterUnderTest) -> Iterator[Check]:
    """Round trip of a request, and how far the clocks are apart."""
    times, skews = [], []
    for _ in range(HELLOS):
        before = time.time()
        began = time.monotonic()
        hello = tested.relay.hello()
        times.append(time.monotonic() - began)
        skews.append(hello.time - (before + times[-1] / 2))
    median_s = statistics.median(times)
    found = f"{1000 * median_s:.1f} ms a request (median of {HELLOS})"
    if median_s > SLOW_ROUND_TRIP_S:
        yield warning("round trip", found, "the link or the login node is slow", "Screens will lag; try another node.")
    else:
        yield ok("round trip", found, median_s)
    yield _clock(min(skews, key=abs))


def _clock(skew_s: float) -> Check:
    found = f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    if abs(skew_s) >= BAD_SKEW_S:
        return broken("clock", f"the cluster's clock is {found}", "Set the time here; lost submissions are not found.")
    if abs(skew_s) >= SKEW_S:
        return warning("clock", found, "one of the two clocks is wrong", "Ages on screens are off by that much.")
    return ok("clock", f"{abs(skew_s):.1f} s apart")


def check_scheduler(tested: ClusterUnderTest) -> Iterator[Check]:
    """The scheduler answers, and the profile's partition and nodes are there."""
    if tested.profile.scheduler == "slurm":
        yield from _slurm(tested)
    elif tested.profile.scheduler == "ray":
        yield _ray(tested)
    elif tested.profile.scheduler == "hosts":
        yield from check_host(tested)
    else:
        yield skipped("scheduler", "jobs are started on this machine directly")


def _slurm(tested: ClusterUnderTest) -> Iterator[Check]:
    client = SlurmClient(tested.relay)
    began = time.monotonic()
    jobs = sum(not job.has_ended for _, job in client.queue())  # those that ended are listed for some minutes
    took_s = time.monotonic() - began
    found = f"{jobs} job{'' if jobs == 1 else 's'} of yours"
    if took_s > SLOW_QUEUE_S:
        yield warning("squeue", found, f"the controller took {took_s:.0f} s", "Lists will be old at times.", took_s)
    else:
        yield ok("squeue", found, took_s)
    facts = gather_facts(tested.relay)
    yield from _federation(tested)
    yield _partition(tested, facts)
    yield from _nodes(tested, facts)
    yield _test_only(tested, client)


def _federation(tested: ClusterUnderTest) -> Iterator[Check]:
    """A job of a federation may start on any of its clusters, where this profile does not look."""
    name = "" if tested.profile.slurm_cluster else federation(tested.relay)
    if name:
        here = cluster_name(tested.relay)
        cause = f"jobs may start on other clusters of federation {name}, where rltui does not look"
        yield warning("federation", name, cause, f"slurm_cluster: {here} in the profile keeps them on this one.")


def _partition(tested: ClusterUnderTest, facts: ClusterFacts) -> Check:
    wanted = tested.profile.partition
    names = ", ".join(partition.name for partition in facts.partitions) or "none that you may see"
    known = facts.partition(wanted)
    if known is None:
        cause = f"there is no partition {wanted!r}" if wanted else "the cluster has no default partition"
        return broken("partition", cause, f"Set partition: to one of {names}.")
    if not known.is_up:
        return warning("partition", known.name, "it is down: jobs wait", f"Others: {names}.")
    limit = known.max_time_s
    longest = f"jobs up to {duration(limit)}" if limit else "no time limit"
    return ok("partition", f"{known.name}{'' if wanted else ' (the default)'}, {longest}")


def _nodes(tested: ClusterUnderTest, facts: ClusterFacts) -> Iterator[Check]:
    profile = tested.profile
    nodes = facts.nodes_of(profile.partition)
    usable = [node for node in nodes if node.is_usable]
    gpus = sum(node.gpus for node in usable)
    found = f"{len(usable)} of {len(nodes)} usable, {gpus} GPUs in them"
    if not usable:
        which = profile.partition or "the default"
        yield broken("nodes", f"no node of partition {which} can be used", "`sinfo -R` on the cluster says why.")
    elif profile.gpus_per_node and not any(node.gpus >= profile.gpus_per_node for node in usable):
        cause = f"none of them has gpus_per_node: {profile.gpus_per_node}"
        yield broken("nodes", cause, f"The most is {max(node.gpus for node in usable)}; correct the profile.")
    else:
        yield ok("nodes", found)
    strange = [bad.node for bad in profile.bad_nodes if bad.node not in {node.name for node in facts.nodes}]
    if strange:
        cause = f"the cluster has no node {', '.join(strange)}"
        yield warning("bad nodes", f"{len(profile.bad_nodes)} in the profile", cause, "Take them out of bad_nodes:.")


def _test_only(tested: ClusterUnderTest, client: SlurmClient) -> Check:
    """A small job as the profile would ask for it; ``--test-only`` never submits."""
    script = f"{tested.hello.home.rstrip('/')}/.rltui-doctor-{secrets.token_hex(6)}.sh"
    tested.relay.put(script, b"#!/bin/bash\ntrue\n", 0o600, exclusive=True)
    try:
        verdict = client.test_only(script, job_options(tested))
    finally:
        tested.relay.run(["rm", "-f", "--", script], timeout_s=15)
    if verdict.accepted:
        return ok("sbatch", f"takes a job: {verdict.sentence}")
    return broken("sbatch", f"refuses a small job: {verdict.sentence}", "Correct partition, account, qos or gres.")


def job_options(tested: ClusterUnderTest) -> list[str]:
    """The options of a one-node job of the profile."""
    profile = tested.profile
    given = {"--partition": profile.partition, "--account": profile.account, "--qos": profile.qos}
    given["--constraint"] = profile.constraint
    given["--gres"] = f"{profile.gres}:1" if profile.gpus_per_node and profile.gres else ""
    return [*(f"{name}={value}" for name, value in given.items() if value), "--nodes=1", "--ntasks=1", "--time=2"]


def _ray(tested: ClusterUnderTest) -> Check:
    address = tested.profile.ray_address.rstrip("/")
    trust_ray(tested.relay, tested.profile)
    try:
        version = RayJobs(tested.relay, address).version()
    except ClusterError as error:
        return broken("ray", error.message.rstrip("."), error.hint or "Check ray_address: and its way.")
    if is_in_the_clear(address):
        cause = "no https: the token and every job can be read on the way"
        return warning(
            "ray", f"Ray {version} at {address}", cause, "Ask its administrators for an address with https://."
        )
    return ok("ray", f"Ray {version} at {address}")


DISK = """
root=$1
mkdir -p -m 700 -- "$root" || exit 1
probe=$root/.rltui-doctor-$$
echo probe > "$probe" && rm -f -- "$probe" || exit 1
df -Pk -- "$root" | awk 'NR == 2 {print "free_kib=" $4}'
df -Pi -- "$root" 2>/dev/null | awk 'NR == 2 {print "free_files=" $4; print "total_files=" $2}'
"""


def check_run_root(tested: ClusterUnderTest) -> Iterator[Check]:
    """The folder of the runs can be written, and has room."""
    root = tested.root.path
    done = tested.relay.run(["sh", "-c", DISK, "sh", root], timeout_s=60)
    if done.rc:
        said = plain(done.err.strip().splitlines()[-1]) if done.err.strip() else "it cannot be written"
        yield broken("run root", f"{root}: {said}", "Set run_root: to a folder that you may write and that nodes see.")
        return
    facts = dict(line.partition("=")[::2] for line in done.out.splitlines() if "=" in line)
    free_gib = _number(facts.get("free_kib")) / 2**20
    found = f"{root}: {size_words(free_gib)} free"
    held = quotas(tested.relay, root)
    found += "".join(f", quota {one.words}" for one in held)
    # BeeGFS, Btrfs and others have no fixed number of inodes and write 0 for all of them
    if _number(facts.get("free_files"), 1.0) == 0 and _number(facts.get("total_files")):
        yield warning("run root", found, "no inodes are left", "Remove small files there.")
    elif any(one.is_nearly_full for one in held):
        yield warning(
            "run root", found, "a quota is nearly full", "`rltui du` says what takes it, `rltui rm` frees it."
        )
    elif free_gib < LITTLE_DISK_GIB:
        yield warning("run root", found, "checkpoints of a 7B model take over 80 GB each", "Choose a larger run_root:.")
    else:
        yield ok("run root", found)


def _number(text: str | None, default: float = 0.0) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default


PACKAGES = """
import importlib.metadata as m, importlib.util, json, os, platform, re, sys
def has_gpu_code():
    try:
        folder = importlib.util.find_spec("torch").submodule_search_locations[0]
        text = open(os.path.join(folder, "version.py")).read()
    except Exception:
        return None
    return bool(re.search(r"(?m)^(?:cuda|hip)\\b[^=]*=\\s*[\\x27\\x22]", text))
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return ""
found = {"python": platform.python_version(), "has_gpu_code": has_gpu_code()}
print("rltui-doctor " + json.dumps({**found, **{n: version(n) for n in sys.argv[1:]}}))
"""


def python_words(profile: Profile, code: str, *words: str) -> list[str]:
    """The command that runs ``code`` with ``words`` by the trainers' interpreter, after the set-up lines."""
    lines = "".join(f"{line}\n" for line in ("set -eo pipefail", *profile.setup_lines))
    script = f'python=$1 code=$2; shift 2; words=("$@"); set --\n{lines}exec "$python" -c "$code" "${{words[@]}}"\n'
    # as in job scripts: only a login shell has the command that loads modules
    return ["bash", *(["-l"] if profile.setup_lines else []), "-c", script, "bash", profile.python, code, *words]


def check_python(tested: ClusterUnderTest) -> Iterator[Check]:
    """The interpreter of the trainers, after the set-up lines, as a job would have it."""
    profile = tested.profile
    if container_of(Slurm(), profile) is not None:
        yield _check_container(tested)
        return
    names = (*NEEDED, *USEFUL)
    done = tested.relay.run(python_words(profile, PACKAGES, *names), env=dict(profile.env), timeout_s=PYTHON_TIMEOUT_S)
    found = _packages(done.out)
    if found is None:
        said = plain(done.err.strip().splitlines()[-1])[:200] if done.err.strip() else f"it ended with status {done.rc}"
        hint = "Set python: to the trainers' interpreter as nodes see it, and setup_lines: to what it needs."
        yield broken("python", f"{profile.python} does not run after the set-up lines: {said}", hint)
        return
    versions = ", ".join(f"{name} {found[name]}" for name in names if found.get(name))
    missing = [name for name in NEEDED if not found.get(name)]
    text = f"{profile.python} is {found['python']}; {versions or 'no package of the trainers'}"
    if missing:
        hint = f"Install them there: {profile.python} -m pip install 'rltui[trainers]'"
        yield warning("python", text, f"not on the login node: {', '.join(missing)}", hint)
    elif found.get("has_gpu_code") is False and profile.gpus_per_node:
        cause = f"this torch is built without CUDA, and nodes have {profile.gpu or 'GPUs'}"
        yield warning("python", text, cause, "Install torch for CUDA there: https://pytorch.org/get-started")
    else:
        yield ok("python", text)


def _check_container(tested: ClusterUnderTest) -> Check:
    """What the login node has of the container; the python inside is asked by the check of a job's nodes."""
    told = tested.profile.container
    problem, absent = container_problems(tested.relay, tested.profile, Slurm())
    name = f"{told.runtime}, {told.image or 'the image is named by each layout'}"
    if problem:
        return broken("container", problem, "Correct container: in the profile; `rltui clusters NAME` shows its file.")
    if absent:
        hint = "Load it in setup_lines, unless it is on compute nodes only; a job checks its nodes first."
        return warning("container", name, absent, hint)
    return ok("container", name)


def _packages(out: str) -> dict[str, Any] | None:
    for line in reversed(out.splitlines()):
        if line.startswith("rltui-doctor "):
            try:
                return msgspec.json.decode(line.removeprefix("rltui-doctor "), type=dict[str, Any])
            except msgspec.DecodeError:
                return None
    return None


def check_env_file(tested: ClusterUnderTest) -> Iterator[Check]:
    """The file of secrets is there and nobody else can read it; its content is not looked at."""
    file = tested.profile.env_file
    if not file:
        return
    problem = env_file_problem(tested.relay, tested.profile, timeout_s=30)
    if problem:
        hint = f"It sets variables of your jobs: let it be a file of your own, and chmod 600 {file}"
        yield broken("env file", problem, hint)
    else:
        yield ok("env file", f"{file}, yours alone")


def check_host(tested: ClusterUnderTest) -> Iterator[Check]:
    """Cards and queue can be looked at, the profile's number of cards is right, and logging out ends no run."""
    several = len(tested.profile.hosts) > 1
    for name, state in host_states(tested.relay, tested.profile).items():
        checks = list(_of(tested, state))
        if several and isinstance(state, HostState):
            checks.append(_disk(tested, name))
        for check in checks:
            yield replace(check, name=f"{name} {check.name}") if several else check


def _disk(tested: ClusterUnderTest, name: str) -> Check:
    """Whether a machine sees what the first one writes into the folder of the runs."""
    root = tested.root.path
    probe = f"{root}/.rltui-doctor-{secrets.token_hex(6)}"
    tested.relay.run(["mkdir", "-p", "-m", "700", "--", root], timeout_s=30)
    tested.relay.put(probe, b"", 0o600, exclusive=True)
    try:
        seen = machines_of(tested.relay, tested.profile)[name].run(["cat", probe], timeout_s=30).rc == 0
    finally:
        tested.relay.run(["rm", "-f", "--", probe], timeout_s=30)
    if seen:
        return ok("disk", f"sees {root}")
    hint = "Set run_root: to a folder that all of hosts: see, or write a profile for each."
    return broken("disk", f"{root} is another folder there, or none", hint)


def _of(tested: ClusterUnderTest, state: HostState | ClusterError) -> Iterator[Check]:
    if isinstance(state, ClusterError):
        yield failed("connection", state)
        return
    if state.problem:
        yield broken("queue", state.problem, "docs/clusters.md says what the queue of a machine needs.")
        return
    yield _cards(tested, state)
    running = sum(ticket.runs for ticket in state.tickets)
    users = ", ".join(sorted({ticket.user for ticket in state.tickets})[:8])
    found = f"{running} running, {len(state.tickets) - running} waiting"
    yield ok("queue", found + (f", of {users}" if users else ""))
    if state.ends_at_logout:
        cause = "systemd ends your processes when you log out (KillUserProcesses=yes)"
        yield warning("logout", "runs would end with your last session", cause, "Run there: loginctl enable-linger")


def _cards(tested: ClusterUnderTest, state: HostState) -> Check:
    wanted, name = tested.profile.gpus_per_node, state.cards[0].name if state.cards else ""
    if state.gpus < wanted:
        cause = f"{state.gpus} of gpus_per_node: {wanted} are there"
        return broken("GPUs", cause, "`nvidia-smi` there says which is lost; or correct the profile.")
    if not state.gpus:
        return ok("GPUs", "none: runs take CPU slots")
    found = f"{state.gpus} × {name or 'GPU'}, {state.free} free"
    if state.foreign:
        which = ", ".join(str(card.index) for card in state.foreign)
        cause = f"GPU {which} is in use by what has no ticket"
        return warning("GPUs", found, cause, f"Runs wait for it: rltui queue {tested.profile.name}")
    return ok("GPUs", found)
