"""The program that runs generated code, as ``sandbox.py`` starts it: a job as JSON on stdin, a report on stdout.

It builds the walls first (namespaces, a root of its own, no network), then runs each test in a child that has given up
all rights and has resource limits, and reads what the child prints. It stays process 1 of its process namespace: no
signal of its children reaches it, and when it ends the kernel ends all that they left. Standard library only, because
it starts once for every sample; it imports nothing of this package.

A job has ``level`` (``namespaces``, ``bwrap``: the walls stand already, or ``rlimits``: none), ``base`` (an empty
folder to mount on), ``uid`` (to become where root starts it; 0: none), ``limits``, ``code``, and ``tests``: each has
``stdin`` text, or ``check`` source that is run after the code. A report has, for each test, ``status`` (``done``,
``failed``, ``timeout``), ``finished`` (the code and check came to their end), ``output`` and ``error``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAPABILITY_VERSION_3 = 0x20080522
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41}
"""System call numbers; the C library has no wrapper."""
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Build the walls, run the job and report."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    job = json.loads(sys.stdin.buffer.read())
    if job["level"] == "namespaces":
        try:
            _enter_namespaces(bool(job["uid"]))
        except OSError as error:
            _report({"walls": f"{error.strerror or error}", "tests": []})
            return
        # unshare(2) moves only later children into a new process namespace: the next one is its process 1
        first = os.fork()
        if first:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
        # a fork clears it in the child (prctl(2))
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            _build_root(job["base"], job["limits"])
        except OSError as error:
            _report({"walls": f"{error.strerror or error}", "tests": []})
            return
    _report({"walls": "", "tests": _run_all(job)})


def _report(report: dict[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(report).encode())
    sys.stdout.buffer.flush()
    os._exit(0)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _enter_namespaces(is_root: bool) -> None:
    """Leave the machine's processes, network, mounts, shared memory and names behind."""
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    uid, gid = os.getuid(), os.getgid()
    _check(libc.unshare(flags if is_root else flags | CLONE_NEWUSER))
    if not is_root:
        # only then may a process without rights write its gid_map (user_namespaces(7))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _check(libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode() or None))


def _build_root(base: str, limits: dict[str, int]) -> None:
    """A root with the system's programs and this Python, read-only, an empty /tmp, and nothing else of the machine.

    No /home, /run (munge's socket lets code submit jobs), /etc, /proc, /sys, /dev/shm; no device but the harmless ones.
    """
    # systemd has all mounts shared: what is mounted here would show on the machine
    _mount("none", "/", "none", MS_REC | MS_PRIVATE)
    _mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for folder in (*SYSTEM_FOLDERS, sys.base_prefix):
        _show(folder, base)
    Path(base + "/dev").mkdir()
    for device in DEVICES:
        Path(base + device).touch()
        _mount(device, base + device, "none", MS_BIND)
    Path(base + "/tmp").mkdir()
    _mount("tmpfs", base + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"size={limits['tmp']},nr_inodes=4096,mode=1777")
    # only now read-only, when all folders in it are made
    _mount("none", base, "none", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(base)
    # old and new root in one place: the old one then lies on top, and "." is unmounted (pivot_root(2))
    _check(libc.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."))
    _check(libc.umount2(b".", MNT_DETACH))
    os.chdir("/tmp")


def _show(folder: str, base: str) -> None:
    """Make one folder of the machine readable below ``base``; a symbolic link stays one."""
    target = base + folder
    if Path(target).exists() or not Path(folder).is_dir():
        return
    if Path(folder).is_symlink():
        Path(target).symlink_to(os.readlink(folder))  # noqa: PTH115
        return
    Path(target).mkdir(parents=True)
    # in two calls: the one that binds heeds no other flags (mount(2))
    _mount(folder, target, "none", MS_BIND | MS_REC)
    # flags that the machine's mount has can't be taken away from within a user namespace, so they are kept
    kept = os.statvfs(folder).f_flag & (MS_NODEV | 8 | 1024 | 2048)  # noexec, noatime, nodiratime
    _mount("none", target, "none", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def _run_all(job: dict[str, object]) -> list[dict[str, object]]:
    return [_run_one(job, test) for test in job["tests"]]  # type: ignore[attr-defined]


def _run_one(job: dict[str, object], test: dict[str, str]) -> dict[str, object]:
    """Run the code and one test in a child, and end all that it leaves behind."""
    limits: dict[str, int] = job["limits"]  # type: ignore[assignment]
    secret = os.urandom(16).hex().encode()
    out_read, out_write = os.pipe()
    in_read, in_write = os.pipe()
    end_read, end_write = os.pipe()
    child = os.fork()
    if not child:
        for ours in (out_read, in_write, end_read):
            os.close(ours)
        _become(job, in_read, out_write)
        _execute(str(job["code"]), test.get("check", ""), end_write, secret)
    for theirs in (out_write, in_read, end_write):
        os.close(theirs)
    output, timed_out = _collect(out_read, in_write, test.get("stdin", "").encode(), limits)
    status = _end(child, str(job["level"]))
    # what the code has left behind may still hold the other end open
    os.set_blocking(end_read, False)
    told = b""
    with contextlib.suppress(OSError):
        told = os.read(end_read, 64)
    for mine in (out_read, end_read):
        os.close(mine)
    finished = told == secret
    state = "timeout" if timed_out else "done" if finished else "failed"
    return {"status": state, "finished": finished, "output": output.decode(errors="replace"), "exit": status}


def _become(job: dict[str, object], stdin: int, stdout: int) -> None:
    """Turn this child into one that may do nothing but compute."""
    limits: dict[str, int] = job["limits"]  # type: ignore[assignment]
    os.setsid()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stdout, 2)
    for kind, name in (
        (resource.RLIMIT_CPU, "cpu"),
        (resource.RLIMIT_AS, "memory"),
        (resource.RLIMIT_FSIZE, "file"),
        (resource.RLIMIT_NOFILE, "files"),
        (resource.RLIMIT_NPROC, "processes"),
    ):
        resource.setrlimit(kind, (limits[name], limits[name]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if job["level"] == "namespaces":
        _give_up_rights(int(str(job["uid"])))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # last, as a change of user or rights clears it
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _give_up_rights(uid: int) -> None:
    """Drop every capability, and where root started this, root itself."""
    number = 0
    # until it fails: how many capabilities there are is the kernel's affair
    while libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    if uid:
        # groups before the user: who is not root any more can change no group
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # zeros: effective, permitted and inheritable, of two words each
    _check(libc.capset(header, (ctypes.c_uint32 * 6)()))


def _execute(code: str, check: str, end: int, secret: bytes) -> None:
    """Run the code as a main program, then the check, and say the secret: an early exit of the code does not."""
    failed = True
    try:
        names: dict[str, object] = {"__name__": "__main__", "__builtins__": __builtins__}
        exec(compile(code, "answer.py", "exec"), names)
        if check:
            exec(compile(check, "test.py", "exec"), names)
        failed = False
    except SystemExit as left:
        failed = bool(check) or left.code not in (None, 0)
    except BaseException:  # noqa: BLE001 - whatever generated code raises is its failure, told in its output
        import traceback

        with contextlib.suppress(BaseException):
            traceback.print_exc(limit=3)
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    if not failed:
        os.write(end, secret)
    # no exit handlers: what the code registered with atexit must not run on
    os._exit(int(failed))


def _collect(out: int, to: int, text: bytes, limits: dict[str, int]) -> tuple[bytes, bool]:
    """Feed stdin and read output up to the cap until the child closes it or time is up; whether time was up."""
    deadline = time.monotonic() + limits["wall_ms"] / 1000
    output, pending = bytearray(), memoryview(text)
    os.set_blocking(to, False)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    while (left := deadline - time.monotonic()) > 0:
        readable, writable, _ = select.select([out], [to] if to >= 0 else [], [], left)
        if writable:
            try:
                pending = pending[os.write(to, pending[:65536]) :] if pending else pending
            except OSError:
                pending = pending[:0]
            if not pending:
                os.close(to)
                to = -1
        if readable:
            chunk = os.read(out, 65536)
            output += chunk[: max(0, limits["output"] - len(output))]
            if not chunk or len(output) >= limits["output"]:
                break
    if to >= 0:
        os.close(to)
    return bytes(output), left <= 0


def _end(child: int, level: str) -> int:
    """Kill the child and all that it started, as far as this level can see them; its exit status."""
    grace = time.monotonic() + 0.2  # it has closed its output: let it say how it ended
    status = 0
    while time.monotonic() < grace:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.001)
    alone = level != "rlimits" and os.getpid() == 1
    with contextlib.suppress(ProcessLookupError):
        if alone:
            # to all that process 1 can see but itself: all of its namespace (kill(2))
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, ended = os.waitpid(-1, 0)
            status = ended if pid == child else status
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
