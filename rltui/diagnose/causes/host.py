"""The host: memory, disks, files, ports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause, Fields, safe_word
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.shells import KILLED, KILLED_WORDS, LINE_OF_SCRIPT
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import BAD_TERMINATION, BY_SIGNAL, ENDED_WITH, ENDING_WORDS, Hit, Reading, Wording, worded

_KILLED = 0.5
"""Confidence of wordings that only say that a process was killed."""
_PATH = re.compile(r"['\"‘“]((?:/|[A-Za-z]:\\)[^'\"’”]{1,300})['\"’”]|(?:^|\s)(/[\w.@+~/-]{2,300})")
_PORT = re.compile(r"(?:\]|[\w.)'\"]):(\d{2,5})\b|[,(] ?(\d{2,5})\)|port[ =:]+(\d{2,5})", re.IGNORECASE)
_RAY = re.compile(r"(?i):6379\b|\bgcs|raylet|ray start|ray::|ray/_private|dashboard|redis|\bray\b.{0,40}port")


def host_oom(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A process killed by signal 9 hints at memory only where nothing else says why it was ended."""
    verdict = surest(matches)
    if verdict is None or verdict.confidence > _KILLED:
        return verdict
    others = all_matches.causes - {"host_oom_slurm", "ray_actor_died", "engine_core_died"}
    return None if others else verdict


def read_no_space(hit: Hit) -> Reading | None:
    """Which disk: shared memory is a matter of the loader's, the rest of disks."""
    text = hit.context.line.text
    if "slurmd" in text and "spool" in text:
        return None  # the node's own disk: Slurm's matter
    if re.search(r"/dev/shm|</torch_|psm_|shm_open", text):
        return Reading(0.85, "dataloader_killed")
    match = _PATH.search(text)
    path = (match[1] or match[2]) if match else ""
    return Reading(0.95, fields={"path": path} if path else {})


def read_port(hit: Hit) -> Reading:
    """Ray's own ports are a matter of two Rays on a node, others of two runs or of bad luck."""
    text = hit.context.line.text
    match = _PORT.search(text)
    port = next((group for group in match.groups() if group), "") if match else ""
    actor = hit.context.line.actor
    cause = "ray_port_in_use" if _RAY.search(text) or actor in ("raylet", "gcs_server") else ""
    return Reading(0.9, cause, {"port": port} if port else {})


_WAS_FULL = r"host memory of (?P<node>[\w.-]+) was at \d+ % \(.{1,60}\) just before the end"


def _free_space(fields: Fields) -> tuple[Remedy, ...]:
    """Where the evidence names no file, the run's own folder is what is looked at."""
    place = safe_word("path", fields) if "path" in fields else "<run folder>"
    return (
        Remedy(
            id="free-space",
            summary="Free space on that file system, keep fewer checkpoints, and move caches and Ray's logs.",
            commands=(f"df -h {place}", f"df -i {place}"),
            safe="confirm",
        ),
    )


CAUSES = (
    Cause(
        id="host_oom_slurm",
        tier="site",
        title="The job ran out of host memory and the kernel killed processes",
        tell="slurmstepd counts oom-kill events, srun says Out Of Memory, or the kernel names the killed process. "
        "sacct says OUT_OF_MEMORY (exit 0:125 or signal 9). /dev/shm counts as memory too.",
        wordings=(
            *worded(
                ("oom", r"(?i)detected \d+ oom[-_ ]?kill event", "oom oomkill"),
                ("out of memory", r"(?:srun|slurmstepd): error:.{0,120}Out Of Memory"),
                ("out_of_memory", r"(?:\b|\|)OUT_OF_MEMORY(?:\b|\|)"),
                (
                    "exceeded",
                    r"(?i)exceeded (?:job|step) memory limit|step .{0,40}exceeded (?:virtual )?memory limit|exceeded "
                    r"memory "
                    r"limit \(",
                ),
                ("out of memory: kill", r"(?i)out of memory: kill(?:ed)? process", "memory"),
                ("memory cgroup out of memory", ""),
                ("oom-kill:constraint", ""),
                ("invoked oom-killer", ""),
                ("defaultcpuallocator", r"(?i)DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory"),
                (
                    "cannot allocate memory",
                    r"(?i)(?:Errno 12\]|OSError|RuntimeError|fork|mmap).{0,400}Cannot allocate "
                    r"memory",
                ),
                ("std::bad_alloc", ""),
                (  # the drivers of accelerators that name the side which had no memory
                    "",
                    r"(?i)\bhost ?mem(?:ory)?\b.{0,40}\b(?:insufficient|not enough|alloc\w* fail|exhausted)|"
                    r"\bfail\w* to alloc\w* (?:\w+ ){0,3}host memory|\baclrtMallocHost\b.{0,60}\bfail",
                    "host hostmem hostmemory aclrtmallochost",
                ),
                ("oomkilled", r"\bOOMKilled\b"),
                ("low on resource: memory", ""),  # the kubelet's words, before it evicts
                ("oom killed", r"(?i)have been oom killed"),
                ("unable to allocate", r"(?:MemoryError|ArrayMemoryError).{0,20}Unable to allocate [\d.]+ [KMGTP]iB"),
                ("memoryerror", r"^(?:builtins\.)?MemoryError(?:: .{0,200})?$"),
                ("out_of_me+", r"(?:^|[|\s])OUT_OF_ME\+"),
                confidence=0.95,
                unless=r"CUDA_ERROR|Detected 0 oom|partially swapped out|^(?:builtins\.)?MemoryError: .{0,40}(?:GPU|"
                r"CUDA)",
            ),
            *worded(("", rf"slurm_script: {LINE_OF_SCRIPT}\d+ {KILLED}", KILLED_WORDS), confidence=0.65),
            *worded(("", rf"{LINE_OF_SCRIPT}\d+ {KILLED} +\S", KILLED_WORDS), confidence=0.5),
            Wording(
                anchor="sigkill",
                pattern=r"(?i)\b(?:trainer|process|worker|child|signals?|died|killed|terminated)\b.{0,80}\bSIGKILL\b",
                # launchers end their own processes so, and say that they do
                unless=r"(?i)potential root causes|possible causes|OOM killer|forcefully|\bsen(?:d|ding|"
                r"t)\b.{0,40}SIGKILL",
                confidence=0.5,
            ),
            Wording(
                anchor="",
                words=tuple(ENDING_WORDS.split()),
                pattern=rf"(?i){ENDED_WITH}(?:-9|137)\b",
                confidence=0.5,
            ),
            *worded(("signal", rf"(?i){BY_SIGNAL}9\b"), ("exit code", rf"{BAD_TERMINATION}9$"), confidence=0.5),
            *worded(("just before the end", _WAS_FULL), confidence=0.7),
        ),
        weigh=host_oom,
        explains=frozenset({"dataloader_killed"}),
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
        collect=(
            "sacct's State and MaxRSS of the job's steps",
            "dmesg of the node: the kernel names what it killed",
            "df /dev/shm on the node",
        ),
        sources=("https://slurm.schedmd.com/sbatch.html#OPT_mem", "https://slurm.schedmd.com/cgroup.conf.html"),
    ),
    Cause(
        id="dataloader_killed",
        tier="root",
        title="A data-loader worker was killed, most often for want of shared memory",
        tell="Bus error means that /dev/shm is full; Killed means host memory.",
        wordings=(
            Wording(
                anchor="dataloader worker",
                pattern=r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) ?"
                r"(?:is killed by signal(?!: (?:Seg|Ill|Float|Abort))|"
                r"exited unexpectedly)",
                confidence=0.95,
            ),
            *worded(
                ("insufficient shared memory", ""),
                ("bus error encountered in worker", ""),
                (
                    "shared memory",
                    r"(?i)unable to (?:allocate|write|open|create) .{0,40}shared memory|dataloader.{0,80}out of "
                    r"shared memory",
                ),
                ("unable to write to file </torch", ""),
                ("insufficient space in", r"Insufficient space in \S+ for .{1,80}: \d+ MiB required, \d+ MiB free"),
                (
                    "bus error",
                    r"(?i)^\W*(?:fatal python error: )?bus error(?: \(core dumped\))?|Signal: Bus error|task \d+: Bus "
                    r"error",
                ),
                ("caught signal 7", ""),
                ("signal 7", r"\bSignal 7 \(SIGBUS\)"),
                ("exitcode", r"\(exitcode: -7\)"),
                ("/dev/shm", r"^(?:tmpfs|shm)\s.*\s(?:9[5-9]|100)% /dev/shm"),
                confidence=0.8,
                unless=r"Too many open files",
            ),
        ),
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
        tell="Errno 122. Often it is $HOME with its caches (Triton, HF, W&B), or the number of files, not the "
        "run's own folder.",
        wordings=worded(
            ("quota exceeded", r"(?i)disk quota exceeded|quota exceeded.{0,40}(?:file|disk|block|inode)"),
            ("errno 122", ""),
            ("edquot", ""),
            ("os error 122", ""),
            confidence=0.95,
        ),
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
        tell="Errno 28, a failed PytorchStreamWriter, an I/O error, or a network file system that is gone (errno 107, "
        "116). The path says which disk.",
        wordings=(
            Wording(
                anchor="no space left on device",
                unless=r"(?i)inotify|file watchers|NCCL WARN|shared memory segment",
                check=read_no_space,
            ),
            *worded("low on resource: ephemeral-storage"),
            Wording(anchor="errno 28", unless=r"(?i)inotify|no space left", check=read_no_space),
            *worded(
                ("pytorchstreamwriter failed", ""),
                ("unexpected pos", r"inline_container\.cc.{0,40}unexpected pos \d+ vs"),
                ("storagefull", ""),
                ("not enough disk space", r"OSError: Not enough disk space\. Needed"),
                ("os error 28", ""),
                ("iostream error", r"basic_ios::clear: iostream error"),
                ("enospc", r"\bENOSPC\b"),
                (
                    "input/output error",
                    r"(?i)(?:errno 5\]|OSError|torch\.save|writ(?:e|ing)|"
                    r"fwrite).{0,80}Input/output error",
                ),
                # network file systems (NFS, Lustre, FUSE) whose server or mount went away
                (
                    "errno",
                    r"Error: \[Errno (?:30|107|108|116|121)\] (?:Read-only file system|Transport endpoint|"
                    r"Cannot send after transport|Stale file handle|Remote I/O error)(?!.*/site-packages/)",
                ),
                (
                    "full",
                    r"(?i)(?:error|fail\w*|cannot|can't|unable|abort\w*|exception|fatal|writ\w+).{0,120}\b(?:disk|"
                    r"file ?system|"
                    r"device|volume)(?: is)? full\b",
                ),
                confidence=0.85,
                unless=r"(?i)inotify|file watchers|System limit|OutOfDiskError",
            ),
            *worded(
                # of what a check before the start says of a node, its own temporary directory is a matter of that node
                (
                    "gib free",
                    r"(?:^(?!preflight: node |.*nodes cannot run this job).*|the run directory )"
                    r"\((?P<path>/[^)]{1,300})\) has [\d.]+ GiB free, [\d.]+ (?:GiB )?are needed",
                ),
                (
                    "a checkpoint needs about",
                    r"a checkpoint needs about [\d.]+ GiB and (?P<path>\S{1,300}) has [\d.]+ GiB free",
                ),
                confidence=0.95,
            ),
        ),
        explains=frozenset({"ray_disk_full", "ckpt_broken", "preflight_failed"}),
        remedies=_free_space,
        wrong=("Looking at free bytes only: a file system without free inodes says the same.",),
        sources=("hkust-nlp/simpleRL-reason#19", "ray-project/ray#15595"),
    ),
    Cause(
        id="access_denied",
        tier="root",
        title="A file or folder may not be read or written",
        detail="{path}",
        tell="Errno 13. Often a cache that was put at / because HOME is not set in a container. Or the files are "
        "another user's, or root's in an image.",
        wordings=worded(
            # the number is the same in each language
            ("permissionerror: [errno 13]", r"PermissionError: \[Errno 13\] [^:]+: b?['\"](?P<path>[^'\"]+)['\"]"),
            ("permissionerror", r"^PermissionError: .{1,200}(?:permitted|denied)"),
            # what buckets answer
            (
                "",
                r"\bdoes not have storage\.\w+\.\w+ access\b|^\S+: An error occurred \(AccessDenied\)",
                "storage accessdenied",
            ),
            "os error 13)",
            confidence=0.8,
            unless="wandb",
        ),
        explains=frozenset({"ckpt_broken", "output_folder_missing"}),
        remedies=(
            Remedy(
                id="own-folder",
                summary="Look whose it is, from the node and inside the container; put HOME and the caches on a folder "
                "of yours.",
                commands=("ls -ld {path}", "export HOME=<folder> HF_HOME=<folder>/hf XDG_CACHE_HOME=<folder>/cache"),
                safe="never",
            ),
        ),
        wrong=("chmod 777: other people's jobs then write there too.",),
        sources=("opendatahub-io/ilab-on-ocp#26",),
    ),
    Cause(
        id="too_many_open_files",
        tier="root",
        title="The limit of open files was reached",
        tell="Errno 24; between processes of a data loader it shows as 'received 0 items of ancdata'.",
        wordings=worded(
            ("too many open files", ""),
            ("errno 24]", ""),
            ("0 items of ancdata", ""),
            ("emfile", r"\bEMFILE\b"),
            confidence=0.95,
        ),
        explains=frozenset({"dataloader_killed", "nccl_system_error"}),
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
        sources=("https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",),
    ),
    Cause(
        id="port_in_use",
        tier="root",
        recovery="restart",
        title="A TCP port is already taken",
        detail="port {port}",
        tell="Errno 98. Another run of yours on the node, or the time between choosing a port and using it.",
        wordings=(
            Wording(
                anchor="address already in use",
                pattern=r"(?i)address already in use",
                check=read_port,
            ),
            Wording(anchor="eaddrinuse", check=read_port),
            Wording(anchor="errno 98", check=read_port),
            *worded(
                ("failed to listen on any local network address", ""),
                (
                    "port",
                    r"(?i)(?:could not|cannot|unable to|failed to) find (?:an? )?(?:free|open|unused) ports?\b",
                    "port ports",
                ),
                ("but another process is utilizing it", ""),
                ("port", r"(?i)\bport \d{2,5} (?:is )?(?:already )?(?:in use|occupied|taken|being used)"),
                confidence=0.85,
                unless=r"(?i)trying (?:the )?(?:next|another|port \d+)|using (?:port )?\d+ instead|instead\b",
            ),
        ),
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
