"""How they say it: The operating system and Python on it."""

from rltui.diagnose import host_checks
from rltui.diagnose.signs import Sign, signs

SIGNS = (
    *signs(
        "host_oom_slurm",
        ("oom", r"(?i)detected \d+ oom[-_ ]?kill event", "oom oomkill"),
        ("out of memory", r"(?:srun|slurmstepd): error:.{0,120}Out Of Memory"),
        ("out_of_memory", r"(?:\b|\|)OUT_OF_MEMORY(?:\b|\|)"),
        (
            "exceeded",
            r"(?i)exceeded (?:job|step) memory limit|step .{0,40}exceeded (?:virtual )?memory limit|exceeded memory "
            r"limit \(",
        ),
        ("out of memory: kill", r"(?i)out of memory: kill(?:ed)? process", "memory"),
        ("memory cgroup out of memory", ""),
        ("oom-kill:constraint", ""),
        ("invoked oom-killer", ""),
        ("defaultcpuallocator", r"(?i)DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory"),
        ("cannot allocate memory", r"(?i)(?:Errno 12\]|OSError|RuntimeError|fork).{0,80}Cannot allocate memory"),
        ("std::bad_alloc", ""),
        ("oomkilled", r"\bOOMKilled\b"),
        ("oom killed", r"(?i)have been oom killed"),
        ("unable to allocate", r"(?:MemoryError|ArrayMemoryError).{0,20}Unable to allocate [\d.]+ [KMGTP]iB"),
        ("memoryerror", r"^(?:builtins\.)?MemoryError(?:: .{0,200})?$"),
        ("out_of_me+", r"(?:^|[|\s])OUT_OF_ME\+"),
        confidence=0.95,
        unless=r"CUDA_ERROR|Detected 0 oom|partially swapped out|^(?:builtins\.)?MemoryError: .{0,40}(?:GPU|CUDA)",
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
        pattern=r"(?i)(?:trainer|process|worker|child).{0,80}\bSIGKILL\b|Signal 9 \(SIGKILL\)",
        # launchers end their own processes so, and say that they do
        unless=r"(?i)potential root causes|possible causes|OOM killer|forcefully|\bsen(?:d|ding|t)\b.{0,40}SIGKILL",
        confidence=0.5,
    ),
    Sign(
        cause="host_oom_slurm",
        anchor="code",
        words=("code", "exitcode"),
        pattern=r"(?:exits with return code = |exit ?code ?: ?|exited with code )(?:-9|137)\b",
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
            r"(?i)^\W*(?:fatal python error: )?bus error(?: \(core dumped\))?|Signal: Bus error|task \d+: Bus error",
        ),
        ("caught signal 7", ""),
        ("/dev/shm", r"^(?:tmpfs|shm)\s.*\s(?:9[5-9]|100)% /dev/shm"),
        confidence=0.8,
        unless=r"Too many open files",
    ),
    *signs(
        "disk_quota",
        ("quota exceeded", r"(?i)disk quota exceeded|quota exceeded.{0,40}(?:file|disk|block|inode)"),
        ("errno 122", ""),
        ("edquot", ""),
        ("os error 122", ""),
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
        ("os error 28", ""),
        ("iostream error", r"basic_ios::clear: iostream error"),
        ("enospc", r"\bENOSPC\b"),
        ("input/output error", r"(?i)(?:errno 5\]|OSError|torch\.save|writ(?:e|ing)|fwrite).{0,80}Input/output error"),
        (
            "full",
            r"(?i)(?:error|fail\w*|cannot|can't|unable|abort\w*|exception|fatal|writ\w+).{0,120}\b(?:disk|file ?system|"
            r"device|volume)(?: is)? full\b",
        ),
        confidence=0.85,
        unless=r"(?i)inotify|file watchers|System limit|OutOfDiskError",
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
