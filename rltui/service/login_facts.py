"""What the login node says of a job before it is submitted: its python, its file of secrets, and sbatch's own test."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec.structs import replace

from rltui.check.live_rules.cluster_rules import more_than_one_machine, nodes_over_profile, time_over_profile
from rltui.check.live_subject import duration
from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.gather_facts import recent_facts
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile, container_of, in_partition
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import Completed, RelayError
from rltui.cluster.remote_paths import expanded
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.nodes import RESERVATIONS_ARGV
from rltui.cluster.slurm.replies import SlurmUnansweredError
from rltui.errors import ClusterError, RltuiError
from rltui.layout.settings import Slurm
from rltui.layout.time_limit import time_limit_s
from rltui.onnode.container import PROGRAMS
from rltui.runs import quoting
from rltui.runs.directory import MODULES, optional_modules
from rltui.runs.script import preview_script
from rltui.runs.script_job import ScriptJob, Work
from rltui.service.context import Context
from rltui.service.eligible import count_eligible

LOOK_S = 1.0
"""How long the profile's set-up lines and python may take here; what takes longer is left to the job."""

NO_PYTHON, LACKS, SET_UP = "rltui: no python", "rltui: lacks", "rltui: set-up"
PROBE = """
command -v "$rltui_python" >/dev/null || {{ echo '{no_python}'; exit 0; }}
exec "$rltui_python" -c 'import importlib.util as u, sys
print("{lacks}", *[name for name in sys.argv[1:] if u.find_spec(name) is None])' {modules}
"""

AFTER_SET_UP = """set -eo pipefail
trap 'echo "rltui: set-up ended with status $?"' EXIT
{lines}
trap - EXIT
"""
"""The profile's lines as a job takes them, where one that fails is the end, and what tells that it was one of them."""

CONTAINER_PROBE = """
said() {{ echo "rltui: $1 $2"; }}
command -v {program} >/dev/null || said warning {absent}
{pyxis}
[[ -z {image} || -e {image} ]] || said problem {no_image}
{python} -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || said problem {no_python}
"""
OWNER = """
case $1 in "~/"*) file=$HOME/${1#"~/"} ;; *) file=$1 ;; esac
[ -f "$file" ] && [ -r "$file" ] && stat -L -c '%a %u' -- "$file" && id -u
"""
PYXIS_PROBE = "srun --help 2>/dev/null | grep -q -- --container-image || said warning 'srun here has no pyxis plugin'"

ONLY_IN_JOBS = 'what only compute nodes can do stands behind: [ -z "$SLURM_JOB_ID" ] ||'
"""How a set-up line is left out where nothing but a look at it is wanted; ``--unchecked`` would drop every check."""


def _what_it_has(node: NodeFacts) -> str:
    gpus = f"{node.gpus} GPU{'s' * (node.gpus != 1)} with " if node.gpus else ""
    return f"{gpus}{node.cpus} cores and {node.memory_gib:.0f} GiB"


VALID: tuple[tuple[str, str, Callable[[ClusterFacts], Sequence[str]]], ...] = (
    ("account", "your accounts", lambda facts: facts.accounts),
    ("partition", "partitions", lambda facts: [one.name for one in facts.partitions]),
    ("node configuration", "nodes have", lambda facts: sorted({_what_it_has(node) for node in facts.nodes})),
    ("feature", "features of nodes", lambda facts: sorted({word for node in facts.nodes for word in node.features})),
)
"""A word of Slurm's refusals, and what may stand there instead as far as the facts tell."""

ASKED = {
    "qos": ("qualities of service", ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name"]),
    "reservation": ("reservations", RESERVATIONS_ARGV),
    "license": ("licences", ["scontrol", "--oneliner", "show", "licenses"]),
}
"""The same for what is asked only once Slurm has refused it."""

NAMED = {"reservation": r"ReservationName=(\S+)", "license": r"LicenseName=(\S+)"}
"""Where scontrol writes the names of these; sacctmgr writes one a line."""

MOST_NAMES = 12


def python_problem(relay: RelayClient, profile: Profile, slurm: Slurm, modules: Sequence[str] = ()) -> str:
    """Why the profile's set-up lines or python cannot do it, seen from the login node; empty where that is not clear.

    Args:
        relay: The login node.
        profile: Whose python.
        slurm: What a job asks for, its container too.
        modules: What the python has to have.
    """
    if container_of(slurm, profile) is not None:  # it is in the image, which the node check asks
        return ""
    path = quoting.bash_path(profile.python, "python")
    probe = PROBE.format(no_python=NO_PYTHON, lacks=LACKS, modules=" ".join(modules))
    done = _after_set_up(relay, profile, f"rltui_python={path}\n{probe}")
    if done is None:
        return ""
    last = next((line for line in reversed(done.out.splitlines()) if line.startswith("rltui: ")), "")
    if last.startswith(SET_UP):
        return _set_up_problem(done)
    if last == NO_PYTHON:
        return f"{profile.python} is not there on the login node{_shell_says(done)}"
    missing = last.removeprefix(LACKS).split() if last.startswith(LACKS) else []
    words = f"{profile.python} lacks {', '.join(missing)}; python: of the profile names one that has them"
    return words if missing else ""


def container_problems(relay: RelayClient, profile: Profile, slurm: Slurm) -> tuple[str, str]:
    """Why the job's container would not start, and what may only be missing on the login node; empty: nothing."""
    found = container_of(slurm, profile)
    if found is None:
        return "", ""
    program, python = PROGRAMS[found.runtime], found.outer_python or "python3"
    image = quoting.bash_path(found.image, "the image") if found.image.startswith(("/", "~/")) else "''"
    probe = CONTAINER_PROBE.format(
        program=program,
        absent=quoting.bash_quote(f"{program} is not on the login node"),
        pyxis=PYXIS_PROBE if found.runtime == "pyxis" else "",
        image=image,
        no_image=quoting.bash_quote(f"the image {found.image} is not there on the login node"),
        python=quoting.bash_path(python, "outer_python"),
        no_python=quoting.bash_quote(f"{python} is no Python 3.8 or newer on the login node (container.outer_python)"),
    )
    done = _after_set_up(relay, profile, probe)
    if done is None:
        return "", ""
    if SET_UP in done.out:
        return _set_up_problem(done), ""
    said = [line.removeprefix("rltui: ").split(" ", 1) for line in done.out.splitlines() if line.startswith("rltui: ")]
    kinds = ["; ".join(plain(text) for kind, text in said if kind == one) for one in ("problem", "warning")]
    return kinds[0], kinds[1]


def _after_set_up(relay: RelayClient, profile: Profile, script: str) -> Completed | None:
    """What ``script`` says after the profile's set-up lines; None where that takes too long to be told here."""
    shell = ["bash", "-l"] if profile.setup_lines else ["bash"]  # as in job scripts: only a login shell has modules
    before = AFTER_SET_UP.format(lines="\n".join(profile.setup_lines)) if profile.setup_lines else ""
    try:
        return relay.run([*shell, "-s"], stdin=(before + script).encode(), timeout_s=LOOK_S, idempotent=True)
    except RelayError:
        return None


def _set_up_problem(done: Completed) -> str:
    status = done.out.rpartition(SET_UP)[2].split()[-1]
    said = f"the profile's setup_lines end with status {status} on the login node{_shell_says(done)}"
    return f"{said}; {ONLY_IN_JOBS}"


def _shell_says(done: Completed) -> str:
    last = plain((done.err.strip().splitlines() or [""])[-1])
    said = re.sub(r"^\S*bash: line \d+: ", "", last)[:200]  # the number is of a line of the probe, not of theirs
    return f" (its shell says: {said})" if said else ""


def env_file_problem(relay: RelayClient, profile: Profile, timeout_s: float = LOOK_S) -> str:
    """Why a job would refuse the profile's file of secrets, whose content is not looked at; empty where it would not.

    Raises:
        ClusterError: Nobody can tell.
    """
    if not profile.env_file:
        return ""
    done = relay.run(["sh", "-c", OWNER, "sh", profile.env_file], timeout_s=timeout_s, idempotent=True)
    if done.rc:
        return f"{profile.env_file} is not there, or cannot be read"
    mode, owner, me = done.out.split()
    if owner != me:
        return f"{profile.env_file} belongs to somebody else"
    return f"{profile.env_file} has mode {mode}: others may read it; chmod 600" if int(mode, 8) & 0o077 else ""


def _env_file_problem(relay: RelayClient, profile: Profile) -> str:
    """The same; empty, too, where that cannot be told in a moment."""
    try:
        return env_file_problem(relay, profile)
    except RelayError:
        return ""


def folder_problem(relay: RelayClient, folder: str) -> str:
    """Why a script cannot run in ``folder``, seen from the login node; empty where it can, or that is not clear."""
    if not folder:
        return ""
    try:
        there = expanded(relay, folder)
        is_missing = relay.run(["test", "-d", there], timeout_s=LOOK_S, idempotent=True).rc == 1
    except RelayError:
        return ""
    words = f"there is no folder {plain(there)} on the login node; --folder names that of your code there"
    return words if is_missing else ""


def refusal(relay: RelayClient, profile: Profile, work: Work, facts: Callable[[], ClusterFacts]) -> str:
    """Why ``sbatch --test-only`` refuses the script of ``work``, with what is valid; empty where it does not."""
    client = SlurmClient(relay)
    try:
        verdict = client.test(preview_script(work, profile))
        if verdict.accepted or not verdict.is_certain:
            return ""
        return verdict.sentence + valid_values(verdict.sentence, facts(), client.runner.ask)
    except ClusterError:
        return ""


def valid_values(said: str, facts: ClusterFacts, ask: Callable[[Sequence[str]], str]) -> str:
    """What may stand in the place of what Slurm refused, as the end of a sentence; empty where that is not known."""
    low = said.lower()
    for word, what, names_in in VALID:
        if word in low and (names := names_in(facts)):
            return f"; {what}: {_some(names)}"
    for word, (what, argv) in ASKED.items():
        if word in low and "limit" not in low:
            pattern = NAMED.get(word, r"(?m)^([\w.-]+)$")
            try:
                names = re.findall(pattern, ask(argv))
            except ClusterError:  # no sacctmgr there, or no accounting: the refusal stands without them
                return ""
            return f"; {what}: {_some(names)}" if names else f"; there are no {what}"
    return ""


def ask_cluster(context: Context, job: ScriptJob, *, is_new: bool = False) -> None:
    """Ask a cluster whether it could run the job of a script; the arguments are those of ``cluster_problems``.

    Raises:
        RltuiError: It could not, as far as it can tell in a moment.
    """
    problems = cluster_problems(context, job, is_new=is_new)
    if problems:
        raise RltuiError(
            f"Not launched: {'; '.join(problems)}", "The cluster says so; --unchecked submits all the same."
        )


def cluster_problems(context: Context, job: ScriptJob, *, is_new: bool = False) -> list[str]:
    """Why the job of a script would not start on a cluster, a line each; what cannot be told is left out.

    Args:
        context: The cluster.
        job: The job.
        is_new: It has not run before; one that has may lie in a folder that only compute nodes see.
    """
    relay, profile = context.cluster.client, context.cluster.profile
    folder = job.folder if is_new and profile.host else ""
    if profile.scheduler != "slurm":
        problem = more_than_one_machine(profile, job.hardware.nodes)
        return list(filter(None, (f"S612 {problem}" if problem else "", folder_problem(relay, folder))))
    try:
        facts = login_facts(relay, profile, job, partial(recent_facts, relay), folder)
    except SlurmUnansweredError:  # then it takes no job either, and says why
        return []
    name = job.slurm.partition or profile.partition
    partition, asked_s = facts.partition(name), time_limit_s(job.slurm.time)
    found = [facts.refusal, facts.env_file_problem, facts.python_problem, facts.container_problem, facts.folder_problem]
    if name in (profile.partition, *profile.partitions):  # whose limits the profile tells
        there = in_partition(profile, name)
        found += [time_over_profile(there, job.slurm.time), nodes_over_profile(there, job.hardware.nodes)]
    if partition and partition.max_time_s is not None and asked_s is not None and asked_s > partition.max_time_s:
        found.append(
            f"{job.slurm.time} is asked for; partition {partition.name} allows {duration(partition.max_time_s)}"
        )
    left = count_eligible(facts, profile, job)
    if left is not None and left.eligible < left.needed:
        gpus = 0 if job.hardware.on_cpu else job.hardware.gpus_per_node
        with_gpus = f" with {gpus} GPU{'s' * (gpus != 1)}" if gpus else ""
        found.append(
            f"{left.needed} nodes{with_gpus} each are asked for; "
            f"{left.eligible} of the {left.known} of partition {left.partition} could be used"
        )
    return [one for one in found if one]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (" …" if len(names) > MOST_NAMES else "")


def login_facts(
    relay: RelayClient, profile: Profile, work: Work, look: Callable[[], ClusterFacts], folder: str = ""
) -> ClusterFacts:
    """What ``look`` finds, with what the login node says of a job of ``work`` in ``folder``: all is asked at once.

    Raises:
        ClusterError: As ``look``.
    """
    modules = () if isinstance(work, ScriptJob) else [*MODULES, *optional_modules(work)]
    with ThreadPoolExecutor(6) as pool:
        facts = pool.submit(look)
        there = pool.submit(folder_problem, relay, folder)
        python = pool.submit(python_problem, relay, profile, work.slurm, modules)
        secrets = pool.submit(_env_file_problem, relay, profile)
        is_slurm = profile.scheduler == "slurm"
        refused = pool.submit(refusal, relay, profile, work, facts.result) if is_slurm else None
        contained = pool.submit(container_problems, relay, profile, work.slurm) if is_slurm else None
        problem, warning = contained.result() if contained else ("", "")
        return replace(
            facts.result(),
            container_problem=problem,
            container_warning=warning,
            python_problem=python.result(),
            env_file_problem=secrets.result(),
            folder_problem=there.result(),
            refusal=refused.result() if refused else "",
        )
