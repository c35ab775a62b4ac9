"""The host: memory, disks, files, ports."""

from __future__ import annotations

from rltui.diagnose import host_checks
from rltui.diagnose.causes import Cause
from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.verdicts import Remedy

SIGNS = (
    *signs(
        "host_oom_slurm",
        ("oom", r"(?i)detected \d+ oom[-_ ]?kill event", "oom oomkill"),
        ("out of memory", r"(?:srun|slurmstepd): error:.{0,120}Out Of Memory"),
        ("out_of_memory", r"(?:\b|\|)OUT_OF_MEMORY(?:\b|\|)"),
        (
            "exceeded",
            r"(?i)exceeded (?:job|step) memory limit|step .{0,40}exceeded (?:virtual )?memory limit|exceeded memory limit \(",
        ),
        ("out of memory: kill", r"(?i)out of memory: kill(?:ed)? process"),
        ("memory cgroup out of memory", ""),
        ("oom-kill:constraint", ""),
        ("invoked oom-killer", ""),
        ("defaultcpuallocator", r"(?i)DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory"),
        ("cannot allocate memory", r"(?i)(?:Errno 12\]|OSError|RuntimeError|fork).{0,80}Cannot allocate memory"),
        ("std::bad_alloc", ""),
        confidence=0.95,
        unless=r"CUDA_ERROR|Detected 0 oom",
    ),
    Sign(
        cause="host_oom_slurm",
        anchor="killed",
        pattern=r"slurm_script: line \d+: +\d+ Killed\b",
        confidence=0.65,
    ),
    Sign(
        cause="host_oom_slurm",
        anchor="sigkill",
        pattern=r"(?i)(?:trainer|process|worker|child).{0,80}(?:killed by signal 9|received signal 9|\bSIGKILL\b)|Signal 9 \(SIGKILL\)",
        unless=r"(?i)potential root causes|possible causes|OOM killer",
        confidence=0.5,
    ),
    Sign(
        cause="dataloader_killed",
        anchor="dataloader worker",
        pattern=r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) ?(?:is killed by signal|exited unexpectedly)",
        confidence=0.95,
    ),
    *signs(
        "dataloader_killed",
        ("insufficient shared memory", ""),
        ("bus error encountered in worker", ""),
        (
            "shared memory",
            r"(?i)unable to (?:allocate|write|open|create) .{0,40}shared memory|dataloader.{0,80}out of shared memory",
        ),
        ("unable to write to file </torch", ""),
        (
            "bus error",
            r"(?i)^\W*(?:fatal python error: )?bus error(?: \(core dumped\))?|caught signal 7|Signal: Bus error",
        ),
        ("/dev/shm", r"^(?:tmpfs|shm)\s.*\s(?:9[5-9]|100)% /dev/shm"),
        confidence=0.8,
        unless=r"Too many open files",
    ),
    *signs(
        "disk_quota",
        ("quota exceeded", r"(?i)disk quota exceeded|quota exceeded.{0,40}(?:file|disk|block|inode)"),
        ("errno 122", ""),
        ("edquot", ""),
        confidence=0.95,
    ),
    Sign(
        cause="disk_full",
        anchor="no space left on device",
        unless=r"(?i)inotify|file watchers|NCCL WARN|shared memory segment",
        check=host_checks.read_no_space,
    ),
    Sign(cause="disk_full", anchor="errno 28", unless=r"(?i)inotify|no space left", check=host_checks.read_no_space),
    *signs(
        "disk_full",
        ("pytorchstreamwriter failed", ""),
        ("unexpected pos", r"inline_container\.cc.{0,40}unexpected pos \d+ vs"),
        ("storagefull", ""),
        ("enospc", r"\bENOSPC\b"),
        ("input/output error", r"(?i)(?:errno 5\]|OSError|torch\.save|writ(?:e|ing)|fwrite).{0,80}Input/output error"),
        ("disk full", r"(?i)\b(?:disk|file ?system|device|volume)(?: is)? full\b"),
        confidence=0.85,
        unless=r"(?i)inotify|file watchers|System limit",
    ),
    *signs(
        "too_many_open_files",
        ("too many open files", ""),
        ("errno 24]", ""),
        ("0 items of ancdata", ""),
        ("emfile", r"\bEMFILE\b"),
        confidence=0.95,
    ),
    Sign(
        cause="port_in_use",
        anchor="address already in use",
        pattern=r"(?i)address already in use",
        check=host_checks.read_port,
    ),
    Sign(cause="port_in_use", anchor="eaddrinuse", check=host_checks.read_port),
    Sign(cause="port_in_use", anchor="errno 98", check=host_checks.read_port),
    *signs(
        "port_in_use",
        ("failed to listen on any local network address", ""),
        ("port", r"(?i)\bport \d{2,5} (?:is )?(?:already )?(?:in use|occupied|taken|being used)"),
        confidence=0.85,
        unless=r"(?i)trying (?:the )?(?:next|another|port \d+)|using (?:port )?\d+ instead|instead\b",
    ),
)

CAUSES = (
    Cause(
        id="host_oom_slurm",
        tier="site",
        title="The job ran out of host memory and the kernel killed processes",
        tell="slurmstepd counts oom-kill events, srun says Out Of Memory, sacct OUT_OF_MEMORY (exit 0:125 or signal 9), or "
        "the kernel names the killed process. /dev/shm counts as memory too.",
        remedies=(
            Remedy(
                id="more-host-memory",
                summary="Ask for all memory of the node (or half as much again), with fewer loader and rollout workers and less offload.",
                commands=("sbatch --mem=0 …",),
                safe="confirm",
            ),
        ),
        wrong=("A smaller GPU micro batch: host memory is not the GPU's.",),
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
        tell="Errno 122. Often it is $HOME with its caches (Triton, HF, W&B), or the number of files, not the run's own folder.",
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
