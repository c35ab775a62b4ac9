"""What is told of a failure from finite lists: errors of the operating system, signals, components, native files.

Programs word their complaints freely, but they end in what the system answered (``strerror``), name the tool that
failed, or the C++ file whose lines only speak of one thing. Guesses, for logs in which nothing else says why.
"""

from __future__ import annotations

from typing import NamedTuple

from rltui.diagnose.shells import KILLED, KILLED_WORDS, LINE_OF_SCRIPT, SEGFAULT, SEGFAULT_WORDS


class Answer(NamedTuple):
    """One form of a complaint, and the cause that most of them are of.

    Attributes:
        cause: Id of the cause.
        words: One of these stands in every such line, as a whole word, in lower case.
        pattern: Regular expression on the line.
        unless: Regular expression; a line that it matches is no such complaint.
    """

    cause: str
    words: str
    pattern: str
    unless: str = ""


_COMPLAINS = r"(?:error|failed|failure|fatal|cannot|can't|couldn't|could not|unable|denied|refused|timed out|not found)"
_TOOL_NAMES = (
    "container docker dockerd podman crun runc containerd buildah skopeo singularity apptainer enroot pyxis sarus "
    "shifter"
)
_TOOLS = f"(?:{_TOOL_NAMES.replace(' ', '|')})"
_PULLS = r"(?:ErrImagePull|ImagePullBackOff|CreateContainerConfigError|CreateContainerError|RunContainerError)"
_AT_END = r"\W*(?:\((?:os error )?\d+\)|\[\d+\])?\W*$"
_INSIDE = r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0|10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+)\b"
_UNNAMED = (
    r"(?:could not resolve host|temporary failure in name resolution|name or service not known|"
    r"lookup [\w.-]+(?: on [\w.:-]+)?: no such host|getaddrinfo\b)"
)
_UNTRUSTED = (
    r"(?:certificate verif\w+ failed|self[- ]signed certificate|ssl\w* (?:\w+ )?(?:handshake|verification) failed)"
)

_LOST_WORDS = "timed refused unreachable reset failed error unable"

ANSWERS = (
    # components, by their names
    Answer(
        "container_start",
        "errimagepull imagepullbackoff createcontainerconfigerror createcontainererror runcontainererror",
        rf"\b{_PULLS}\b",
    ),
    Answer(
        "container_start",
        _TOOL_NAMES,
        rf"(?i)\b{_TOOLS}\b.{{0,200}}\b{_COMPLAINS}\b|\b{_COMPLAINS}\b.{{0,200}}\b{_TOOLS}\b",
    ),
    Answer(
        "host_oom_slurm",
        "evicted memorypressure oomkilled",
        r"\bMemoryPressure\b|\bOOMKilled\b|\bEvicted\b.{0,200}\bmemory\b",
    ),
    # native files that speak of one thing
    Answer(
        "ray_head_unreachable",
        "gcs raylet rpc worker",
        rf"(?i)\b(?:gcs_\w*(?:client|connection|server)|raylet_(?:ipc_)?client|rpc_client|core_worker_process)\.cc:\d+.{{0,300}}\b{_COMPLAINS}\b",
    ),
    # its other lines tell how it starts, and, where cgroups give it no numbers, what it cannot see
    Answer(
        "ray_oom_kill",
        "memory",
        r"(?i)\bmemory_monitor\w*\.cc:\d+.{0,300}\b(?:above|exceed\w*|kill\w*|evict\w*|low|pressure)\b",
        unless=r"\bUnable to\b",
    ),
    Answer("nccl_ib_error", "ib ibv ibvwrap", rf"(?i)\b(?:net_ib|ibvwrap|ibv_\w+)\b.{{0,200}}\b{_COMPLAINS}\b"),
    Answer(
        "gloo_timeout",
        "socket tcpstore tcpstorelibuvbackend gloo",
        rf"(?i)\b(?:c10d/socket|socket|TCPStore|TCPStoreLibUvBackend|gloo/[\w/]+)\.(?:cpp|cc|h):\d+.{{0,300}}\b{_COMPLAINS}\b",
    ),
    # servers that are asked for by a name of theirs
    Answer("hf_offline_miss", "resolve name lookup getaddrinfo", rf"(?i)^.*\b{_UNNAMED}", _INSIDE),
    Answer("hf_offline_miss", "certificate ssl tls handshake verification", rf"(?i)^.*\b{_UNTRUSTED}", _INSIDE),
    Answer(
        "hf_offline_miss",
        _LOST_WORDS,
        r"(?i)^.{0,300}?\bhttps?://[a-z][\w-]*\.[\w-].{0,300}?"
        r"\b(?:timed out|refused|unreachable|reset by peer|failed|error)\b",
        _INSIDE,
    ),
    Answer(
        "hf_offline_miss",
        _LOST_WORDS,
        r"(?i)^.{0,300}?\b(?:timed out|refused|unreachable|reset by peer|failed|error|unable)\b.{0,300}?"
        r"\bhttps?://[a-z][\w-]*\.[\w-]",
        _INSIDE,
    ),
    # what the system answered, at the end of the line
    Answer("env_import_broken", "exec file", rf"(?i)\b(?:exec format error|cannot execute binary file){_AT_END}"),
    Answer(
        "env_import_broken",
        "command",
        r"(?i)\bcommand not found\W*$|\bnot recognized as an internal or external command",
    ),
    Answer(
        "env_import_broken",
        "shared",
        rf"(?i)\bshared (?:object|library|libraries)\b.{{0,200}}\bno such file or directory{_AT_END}",
    ),
    Answer(
        "access_denied",
        "denied permitted",
        rf"(?i)(?:[:\"'\])`] ?\(?|\()(?:permission denied|operation not permitted|access is denied){_AT_END}",
    ),
    Answer("disk_full", "input transport", rf"(?i)(?:input/output error|transport endpoint is not connected){_AT_END}"),
    Answer(
        "path_missing",
        "file directory",
        rf"(?i)[:\"'\])`] ?\(?(?:no such file or directory|not a directory|is a directory|file not found){_AT_END}",
    ),
    Answer("path_missing", "file directory", r"(?i)^(?:\W|error|fatal)*no such file or directory\b.{0,8}\S"),
    Answer("host_oom_slurm", "memory", rf"(?i)[:\"'\])] ?\(?cannot allocate memory{_AT_END}"),
    # how the process ended
    Answer("host_oom_slurm", "killed", r"(?i)(?:^|: +|\d +)killed(?:\s{2,}.*|\W*)$"),
    Answer("host_oom_slurm", KILLED_WORDS, rf"(?:^|{LINE_OF_SCRIPT}(?:\d+ )?){KILLED}(?:\s{{2,}}.*|\W*)$"),
    Answer(
        "process_crashed",
        "aborted segmentation illegal bus floating",
        r"\b(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Floating point exception)\b\W*"
        r"(?:core dumped)?\W*$",
    ),
    Answer("process_crashed", SEGFAULT_WORDS, rf"^{SEGFAULT}\s*(?:\(.*)?$"),
    Answer(
        "process_crashed",
        "signal sigsegv sigabrt sigbus sigill sigfpe",
        r"(?i)\bsignal[ :=#]{1,3}(?:4|6|7|8|11)\b|(?:\*\*\* ?|[:=(] ?)SIG(?:SEGV|ABRT|BUS|ILL|FPE)\b",
    ),
    Answer(
        "process_crashed",
        "code status",
        r"(?i)\b(?:exit(?:ed)? )?(?:code|status)[ :=]{1,3}(?:-(?:4|6|7|8|11)|13[2-68]|139)\b",
    ),
    Answer(
        "host_oom_slurm", "signal code status", r"(?i)\bsignal[ :=#]{1,3}9\b|\b(?:code|status)[ :=]{1,3}(?:-9|137)\b"
    ),
)
"""By what says most: who complains, then what the system answered, then how the process ended."""
