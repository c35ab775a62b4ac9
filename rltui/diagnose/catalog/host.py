"""The host: memory, disks, files, ports."""

from __future__ import annotations

from rltui.diagnose import host_checks
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Remedy

CAUSES = (
    Cause(
        id="host_oom_slurm",
        tier="site",
        title="The job ran out of host memory and the kernel killed processes",
        tell="slurmstepd counts oom-kill events, srun says Out Of Memory, sacct OUT_OF_MEMORY (exit 0:125 or signal "
        "9), or "
        "the kernel names the killed process. /dev/shm counts as memory too.",
        remedies=(
            Remedy(
                id="more-host-memory",
                summary="Ask for all memory of the node (or half as much again), with fewer loader and rollout "
                "workers and less offload.",
                commands=("sbatch --mem=0 …",),
                safe="confirm",
            ),
        ),
        wrong=("A smaller GPU micro batch: host memory is not the GPU's.",),
        judge=host_checks.host_oom,
        collect=(
            "sacct's State and MaxRSS of the job's steps",
            "dmesg of the node: the kernel names what it killed",
            "df /dev/shm on the node",
        ),
        explains=frozenset({"dataloader_killed", "ray_oom_kill"}),
        sources=("https://slurm.schedmd.com/sbatch.html#OPT_mem", "https://slurm.schedmd.com/cgroup.conf.html"),
    ),
    Cause(
        id="dataloader_killed",
        tier="root",
        title="A data-loader worker was killed, most often for want of shared memory",
        tell="Bus error means that /dev/shm is full; Killed means host memory.",
        remedies=(
            Remedy(
                id="larger-shm",
                summary="Halve the loader's workers, or give the container more shared memory and the job more memory.",
                commands=("df -h /dev/shm", "docker run --shm-size=64g …"),
                safe="auto",
            ),
        ),
        wrong=("num_workers=0 for good: it starves the GPU.",),
        sources=("https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",),
    ),
    Cause(
        id="disk_quota",
        tier="root",
        title="A disk quota is used up",
        detail="writing {path}",
        tell="Errno 122. Often it is $HOME with its caches (Triton, HF, W&B), or the number of files, not the run's "
        "own folder.",
        remedies=(
            Remedy(
                id="move-caches",
                summary="Put the caches on scratch.",
                commands=(
                    "export HF_HOME=<scratch>/hf TRITON_CACHE_DIR=<scratch>/triton VLLM_CACHE_ROOT=<scratch>/vllm",
                    "export TMPDIR=<scratch>/tmp WANDB_DIR=<scratch>/wandb",
                ),
                safe="auto",
            ),
            Remedy(
                id="delete-checkpoints",
                summary="Delete the oldest checkpoints, after looking at the list.",
                safe="confirm",
            ),
        ),
        wrong=("df: it shows the file system, not your quota.",),
        sources=("NOAA-EPIC/EAGLE#121",),
    ),
    Cause(
        id="disk_full",
        tier="root",
        title="A disk is full or failed while writing",
        detail="writing {path}",
        tell="Errno 28, a failed PytorchStreamWriter, or an I/O error under torch.save. The path says which disk.",
        remedies=(
            Remedy(
                id="free-space",
                summary="Free space on that file system, keep fewer checkpoints, and move caches and Ray's logs.",
                commands=("df -h <path>", "df -i <path>"),
                safe="confirm",
            ),
        ),
        wrong=("Looking at free bytes only: a file system without free inodes says the same.",),
        explains=frozenset({"ray_disk_full", "ckpt_broken"}),
        sources=("hkust-nlp/simpleRL-reason#19", "ray-project/ray#15595"),
    ),
    Cause(
        id="too_many_open_files",
        tier="root",
        title="The limit of open files was reached",
        tell="Errno 24; between processes of a data loader it shows as 'received 0 items of ancdata'.",
        remedies=(
            Remedy(
                id="raise-file-limit",
                summary="Raise the soft limit to the hard one in the job script.",
                commands=("ulimit -n $(ulimit -Hn)",),
                safe="auto",
            ),
            Remedy(
                id="fewer-loader-workers",
                summary="Use fewer loader workers, or torch.multiprocessing.set_sharing_strategy('file_system').",
                safe="confirm",
            ),
        ),
        wrong=("Retrying: descriptors leak or are needed, they do not come back.",),
        explains=frozenset({"dataloader_killed", "nccl_system_error"}),
        sources=("https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",),
    ),
    Cause(
        id="port_in_use",
        tier="root",
        title="A TCP port is already taken",
        detail="port {port}",
        tell="Errno 98. Another run of yours on the node, or the time between choosing a port and using it.",
        remedies=(
            Remedy(
                id="free-port",
                summary="Derive ports from the job's id, or let the system choose (--rdzv-endpoint=localhost:0).",
                commands=("export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",),
                safe="auto",
            ),
        ),
        wrong=("Killing whatever holds the port: on a shared node it may be somebody's run.",),
        sources=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    ),
)
