"""What only a node can tell: whether it sees the run root and the internet, its GPUs, and what torch makes of them."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Iterator

from rltui.cluster.plain_text import plain
from rltui.cluster.profile import container_of
from rltui.cluster.relay_types import RelayError
from rltui.cluster.slurm.runner import on_cluster
from rltui.hardware.gpus import find_gpu, gpu_by_nvml
from rltui.layout.schema import Slurm
from rltui.onnode.card_kernels import runs_on
from rltui.service.doctor_checks import Check, ClusterUnderTest, broken, ok, skipped, warning
from rltui.service.doctor_links import job_options, python_words

WAIT_S = 60
"""How long the job may wait in the queue; longer ones are cancelled by srun itself (``--immediate``)."""

TIMEOUT_S = WAIT_S + 120.0

ON_NODE = """
root=$1; mark=$2
echo "host=$(uname -n)"
[ "$(cat "$root/.rltui-doctor-$mark" 2>/dev/null)" = "$mark" ] && echo sees=yes
( umask 077; echo "$mark" > "$root/.rltui-doctor-$mark-back" ) 2>/dev/null && echo writes=yes
echo "time=$(date +%s)"
echo "gpus=$(nvidia-smi -L 2>/dev/null | grep -c GPU)"
echo "capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)"
echo "card=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)"
if command -v python3 > /dev/null; then
  timeout 15 python3 -c 'import urllib.request as u; u.urlopen("https://huggingface.co", timeout=8)' 2>/dev/null
elif command -v curl > /dev/null; then
  curl -s -o /dev/null --max-time 8 https://huggingface.co
else
  (exit 99)
fi
case $? in 0) echo internet=yes ;; 99) ;; *) echo internet=no ;; esac
shift 2
[ $# -gt 0 ] && timeout 90 "$@" 2>/dev/null | grep '^torch='
echo "temp_kib=$(df -Pk "${TMPDIR:-/tmp}" | awk 'NR == 2 {print $4}')"
"""


TORCH = """
import importlib.util, torch
flash = "yes" if importlib.util.find_spec("flash_attn") else "no"
print("torch=" + " ".join([torch.__version__, str(torch.version.cuda), flash, *torch.cuda.get_arch_list()]))
"""
"""Run on the node by the trainers' interpreter; a card's driver is not touched."""


def check_nodes(tested: ClusterUnderTest, confirm: Callable[[str], bool]) -> Iterator[Check]:
    """Run one short job on one node, if ``confirm`` agrees to its command, and say what it saw."""
    if tested.profile.scheduler != "slurm":
        yield skipped("node", "only a Slurm cluster has nodes of its own to ask")
        return
    mark = secrets.token_hex(8)
    root = tested.root.path
    options = [*job_options(tested), "--job-name=rltui-doctor", f"--immediate={WAIT_S}", "--chdir=/"]
    inside = container_of(Slurm(), tested.profile) is not None
    python = [] if inside else python_words(tested.profile, TORCH)
    argv = on_cluster(tested.relay, ["srun", *options, "sh", "-c", ON_NODE, "sh", root, mark, *python])
    if not confirm(shlex.join(["srun", *options, "…"])):
        yield skipped("node", "you did not want a job")
        return
    probe = f"{root}/.rltui-doctor-{mark}"
    try:
        tested.relay.put(probe, mark.encode(), 0o600, exclusive=True)
    except RelayError as error:
        yield broken("node", f"not asked, for {root} cannot be written: {error.message}", "Settle the run root first.")
        return
    try:
        # a proxy of the profile's is how jobs reach the internet
        done = tested.relay.run(argv, env=dict(tested.profile.env), timeout_s=TIMEOUT_S)
        facts = dict(line.partition("=")[::2] for line in done.out.splitlines() if "=" in line)
        if "host" not in facts:
            said = plain(done.err.strip().splitlines()[-1])[:200] if done.err.strip() else f"status {done.rc}"
            yield broken(
                "node", f"the job did not run: {said}", "Try again when nodes are free, or correct the profile."
            )
            return
        yield ok("node", f"a job ran on {facts['host']}; {facts.get('gpus', '0')} GPUs in it")
        yield from _card(tested, facts.get("card", ""))
        yield from _torch(facts)
        back = tested.relay.run(["cat", "--", f"{probe}-back"], timeout_s=30).out.strip() == mark
        yield from _shared(root, facts, back)
        yield from _internet(tested, facts)
    finally:
        tested.relay.run(["rm", "-f", "--", probe, f"{probe}-back"], timeout_s=30)


def _shared(root: str, facts: dict[str, str], back: bool) -> Iterator[Check]:
    if facts.get("sees") == "yes" and facts.get("writes") == "yes" and back:
        yield ok("shared disk", f"{facts['host']} reads and writes {root}, and the login node sees it")
        return
    what = (
        "does not see" if facts.get("sees") != "yes" else "cannot write" if not facts.get("writes") else "writes unseen"
    )
    hint = "Set run_root: to a folder on a file system that login and compute nodes share."
    yield broken("shared disk", f"{facts['host']} {what} {root}", hint)


def _card(tested: ClusterUnderTest, said: str) -> Iterator[Check]:
    """What nvidia-smi says of the first GPU, beside the profile's word for it."""
    name, _, mib = said.rpartition(",")
    if not name or not mib.strip().isdigit():
        return
    gpu = gpu_by_nvml(name.strip(), float(mib))
    wanted = find_gpu(tested.profile.gpu)
    if gpu is None:
        yield warning("gpu", said, "this card is not in rltui's table", "Estimates need one: gpu: in the profile.")
    elif wanted is None or wanted.name != gpu.name:
        cause = f"the profile says {tested.profile.gpu or 'nothing'}"
        yield warning("gpu", f"the node has {gpu.name}", cause, f"Set gpu: {gpu.name}")
    else:
        yield ok("gpu", gpu.name)


def _torch(facts: dict[str, str]) -> Iterator[Check]:
    """What the node's torch was built for, and by which kernel a learner there would attend over packed rows."""
    words = facts.get("torch", "").split()
    if len(words) < 3:
        return
    version, cuda, flash, *built_for = words
    kernel = "torch's kernels, sample by sample (lengths.pack)"
    if flash == "yes" and built_for:
        kernel = f"FlashAttention in fp16 and bf16, else {kernel}"
    text = f"{version}, CUDA {cuda}, built for {' '.join(built_for) or 'CPUs'}; attention by {kernel}"
    capability = facts.get("capability", "")
    if re.fullmatch(r"\d+\.\d+", capability) and not runs_on(capability, built_for):
        cause = f"no kernels for this node's GPUs, compute capability {capability}"
        yield warning("torch", text, cause, "Install a torch that was built for them, see docs/clusters.md.")
    else:
        yield ok("torch", text)


def _internet(tested: ClusterUnderTest, facts: dict[str, str]) -> Iterator[Check]:
    if "internet" not in facts:
        yield skipped("internet", f"{facts['host']} has neither python3 nor curl to ask with")
        return
    has, is_offline = facts["internet"] == "yes", tested.profile.offline
    if has or is_offline:
        said = "reaches huggingface.co" if has else "has none, as the profile says (offline: true)"
        yield ok("internet", f"{facts['host']} {said}")
    else:
        cause = f"{facts['host']} cannot reach huggingface.co"
        yield warning("internet", "none on nodes", cause, "Set offline: true, and fetch models and data beforehand.")
