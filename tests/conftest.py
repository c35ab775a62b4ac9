"""Every test runs away from the user's state, no process outlives the session, and no skip goes unseen."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# a failed assertion of a module that tests share says what it saw, too
SHARED = {path.stem for shape in ("*.py", "*/*.py") for path in Path(__file__).parent.glob(shape)} - {"conftest"}
pytest.register_assert_rewrite(*sorted(SHARED))

NO_SKIPS = bool(os.environ.get("RLTUI_NO_SKIPS"))
SESSION = tempfile.mkdtemp(prefix="rltui-test-")  # directly in the temporary folder: socket paths end at 107 bytes
FIRST_SESSION = os.environ.setdefault("TESTS_SESSION", SESSION)
"""The folder of whoever started this one of several processes."""
LEFT_RUNNING = pytest.StashKey[list[str]]()
FIRST_OF = ("trainers", "cluster")
"""What the first of several processes begins with, and what the others do; either comes last elsewhere. Trainers
compute, and two at once would only slow each other down, each with a Ray of its own; tests of the cluster mostly wait,
and each process has a Slurm of its own."""
ENDING_DEADLINE_S = float(os.environ.get("RLTUI_TEST_ENDING_S", "300"))
"""As long as ``waiting.DEADLINE_S``, and for its reason: on a busy machine what a run left takes minutes to end, and it
only passes where something hangs."""

# What must not reach a test: settings of the user's own runs, clusters, accounts and terminal.
FOREIGN_PREFIXES = ("RLTUI_", "XDG_", "WANDB_", "RAY_", "SLURM_", "HF_", "VLLM_", "TEXTUAL")
FOREIGN = (
    "SSH_AUTH_SOCK",
    "SSH_CONNECTION",
    "TMUX",
    "TMUX_PANE",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "PYTHONDONTWRITEBYTECODE",  # hundreds of processes would each compile what they import
)


def isolate(home: str) -> None:
    """Point this process, and so all its children, to an empty home folder, no network, one time zone and a ctrl+c."""
    for name in list(os.environ):
        if (name.startswith(FOREIGN_PREFIXES) and name != "RLTUI_TEST_ENDING_S") or name in FOREIGN:
            del os.environ[name]
    folders = {
        "HOME": home,
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "XDG_RUNTIME_DIR": f"{home}/run",  # Ray's token is found through HOME
    }
    for folder in folders.values():
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    share_models(Path(folders["XDG_CACHE_HOME"]))
    os.environ.update(folders, TZ="UTC")  # pictures and sentences have times of day
    time.tzset()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background, and so in every child of it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(
        WANDB_MODE="offline", HF_HUB_OFFLINE="1", DO_NOT_TRACK="1", VLLM_NO_USAGE_STATS="1", RAY_USAGE_STATS_ENABLED="0"
    )
    os.environ.update(RAY_worker_niceness="0")  # with its 15, a role gets nothing of a core beside other tests


def share_models(cache: Path) -> None:
    """Let all processes of a session have the builtin models, and what vLLM has found of an architecture.

    Each keeps them under a hash of what they come of, and replaces files by whole ones.
    """
    for name, folder in (("rltui-models", cache / "rltui/models"), ("vllm-models", cache / "vllm/modelinfos")):
        shared = Path(FIRST_SESSION, name)
        shared.mkdir(exist_ok=True)
        folder.parent.mkdir()
        folder.symlink_to(shared)


# How long an example takes, or is drawn, is a matter of what else the machine does.
unhurried = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("unhurried", unhurried)
hypothesis.settings.load_profile("unhurried")

isolate(f"{SESSION}/home")  # at import, before any test module can read the environment
gc.disable()  # until all is collected: of what each process imports and makes until then nothing is garbage


def pytest_collection_finish() -> None:
    """Look for garbage from now on, and never among what was collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test wait for the runs of another: each has a queue of this machine for itself."""
    monkeypatch.setenv("RLTUI_QUEUE", tempfile.mkdtemp(prefix="queue-", dir=SESSION))


def processes_of_attempts() -> Iterator[tuple[int, str]]:
    """Yield (pid, command line) of the processes that carry RLTUI_ATTEMPT and were started by this session.

    The session is recognised by its folder, which HOME and others name: a parallel session has its own.
    """
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            variables = Path(entry.path, "environ").read_bytes()
            words = Path(entry.path, "cmdline").read_bytes()
        except OSError:  # gone by now, or another user's
            continue
        if b"RLTUI_ATTEMPT=" in variables and SESSION.encode() in variables:
            yield int(entry.name), words.replace(b"\0", b" ").decode(errors="replace").strip()


def end_left_processes(deadline_s: float) -> list[str]:
    """Give processes of attempts time to end, kill those that do not, and return a line about each of these."""
    deadline = time.monotonic() + deadline_s
    while (left := list(processes_of_attempts())) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid, _ in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"pid {pid}: {command[:160]}" for pid, command in left]


def skips(config: pytest.Config) -> dict[str, int]:
    """Return how many tests were skipped, by reason, most first."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    reasons = (
        str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")
        for report in reports
    )
    return dict(collections.Counter(reasons).most_common())


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files to several processes (``pytest -n 4``), and to each first what it is there for."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            mine, others = FIRST_OF if node.gateway.id == "gw0" else FIRST_OF[::-1]
            order = {path: (folder_of(path) == others) - (folder_of(path) == mine) for path in self.workqueue}
            self.workqueue.move_to_end(min(order, key=order.__getitem__), last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def folder_of(nodeid: str) -> str:
    """Name of the folder of a test, or of a test file."""
    return Path(nodeid.partition("::")[0]).parent.name


def minutes_by_folder(config: pytest.Config) -> dict[str, float]:
    """Minutes that the tests of each folder took, set-up and clean-up included, most first."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    seconds: collections.Counter[str] = collections.Counter()
    for report in (one for some in reporter.stats.values() for one in some) if reporter else ():
        if isinstance(report, pytest.TestReport):
            seconds[folder_of(report.nodeid)] += report.duration
    return {folder: spent / 60 for folder, spent in seconds.most_common()}


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    """One of several processes has ended: what it left running is the whole session's."""
    left = getattr(node, "workeroutput", {}).get("left_running", [])
    node.config.stash[LEFT_RUNNING] = [*node.config.stash.get(LEFT_RUNNING, []), *left]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A test that leaves the process in another time zone fails by itself, not one of those after it."""
    assert time.localtime(0).tm_hour == 0, "C's library still has another zone: time.tzset() after TZ is set back"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session for processes left running, and for skips where RLTUI_NO_SKIPS forbids them."""
    has_failed = session.exitstatus != pytest.ExitCode.OK  # nobody needs to know then whether what is left would end
    ended = end_left_processes(ENDING_DEADLINE_S / 10 if has_failed else ENDING_DEADLINE_S)
    left = [*session.config.stash.get(LEFT_RUNNING, []), *ended]
    session.config.stash[LEFT_RUNNING] = left
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_running"] = left
    forbidden = NO_SKIPS and skips(session.config)
    if session.exitstatus == pytest.ExitCode.OK and (left or forbidden):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what did not run and what did not end."""
    spent = {folder: minutes for folder, minutes in minutes_by_folder(config).items() if minutes >= 0.1}
    if spent:
        terminalreporter.line("minutes: " + ", ".join(f"{folder} {minutes:.1f}" for folder, minutes in spent.items()))
    not_run = skips(config)
    if not_run:
        terminalreporter.section("NOT RUN HERE", red=NO_SKIPS, yellow=not NO_SKIPS)
        for reason, count in not_run.items():
            terminalreporter.line(f"NOT RUN HERE: {count} test{'s' * (count != 1)} because {reason}")
        if NO_SKIPS:
            terminalreporter.line("RLTUI_NO_SKIPS is set: this is a failure.")
    left = config.stash.get(LEFT_RUNNING, [])
    if left:
        terminalreporter.section("LEFT RUNNING (now killed)", red=True)
        for line in left:
            terminalreporter.line(line)


def pytest_unconfigure() -> None:
    """Remove the session's folder."""
    shutil.rmtree(SESSION, ignore_errors=True)
