"""This machine: its cards, and whether it is a login node of Slurm, where trainers are not to run unasked."""

from __future__ import annotations

import os
import shutil
import subprocess

from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.profiles import load_profiles
from rltui.onnode.preflight import capacity

ASK_S = 5.0
NOT_SET_UP = "establish a configuration source"
"""What Slurm's tools say on a machine that has them and belongs to no cluster."""


def stands_before_slurm() -> bool:
    """Whether this machine belongs to a Slurm cluster and we are not inside one of its jobs."""
    if "SLURM_JOB_ID" in os.environ or not (scontrol := shutil.which("scontrol")):
        return False
    try:
        said = subprocess.run([scontrol, "show", "config"], capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):  # a controller that is away makes it no other machine
        return True
    return NOT_SET_UP not in said.stderr


def here_instead_of_slurm(profile: Profile) -> tuple[str, ...]:
    """What to say before something is started on this machine beside its Slurm; empty where nothing need be said."""
    if profile.scheduler != "local" or not stands_before_slurm():
        return ()
    slurm = [f"--cluster {name}" for name, one in load_profiles().by_name.items() if one.scheduler == "slurm"]
    way = f"`{slurm[0]}` submits it instead" if slurm else "`rltui setup NAME` makes a profile that submits it instead"
    return ("this machine has Slurm and this is not one of its jobs: Ray and the trainer would run right here", way)


def machine_facts() -> ClusterFacts:
    """This machine, for the rules about clusters: one node, with the GPUs that an attempt's supervisor would find here.

    Its cores and memory are left out: the supervisor starts a layout for more of them, alone.
    """
    return ClusterFacts(nodes=(NodeFacts(name=LOCAL, state="idle", gpus=capacity().gpus),))
