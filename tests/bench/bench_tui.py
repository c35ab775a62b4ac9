"""Figures of the cockpit: start-up and key to paint in a pseudo-terminal, and CPU per refresh. Prints, judges nothing.

Usage: ``python tests/bench/bench_tui.py``. Start-up is measured from the start of the interpreter to the first byte and
to the first frame with rows; key to paint from writing the key to the last byte of the frame that it causes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltui.watch.node_samples import HostSnapshot

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "tui" / "run_fake.py"
DEADLINE_S = 15.0
WIDTH, HEIGHT = 120, 40
ROW = b"grpo-tiny-4f2a"
COMPILED = tempfile.mkdtemp(prefix="rltui-bench-")


class Terminal:
    """The program in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.began = time.perf_counter()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPYCACHEPREFIX": COMPILED}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation is compiled once, not at each start
        self.process = subprocess.Popen(
            [sys.executable, str(FAKE), *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=ROOT
        )
        os.close(slave)
        self.seen = b""

    def read(self, wait_s: float) -> bytes:
        """What comes within ``wait_s``."""
        ready, _, _ = select.select([self.master], [], [], wait_s)
        chunk = os.read(self.master, 1 << 16) if ready else b""
        self.seen += chunk
        return chunk

    def until(self, words: bytes) -> float:
        """Seconds from the start until ``words`` were written."""
        while words not in self.seen:
            self.read(0.05)
            if time.perf_counter() - self.began > DEADLINE_S:
                raise TimeoutError(f"{words!r} did not come within {DEADLINE_S} s")
        return time.perf_counter() - self.began

    def quiet(self, quiet_s: float = 0.25) -> None:
        """Wait until nothing more is written."""
        while self.read(quiet_s):
            pass

    def key_to_paint(self, key: bytes) -> float:
        """Seconds from a key to the last byte of what it paints (30 ms without a byte end a frame)."""
        began = time.perf_counter()
        os.write(self.master, key)
        last = began
        while time.perf_counter() - began < 1.0:
            if self.read(0.03):
                last = time.perf_counter()
            elif last > began:
                break
        return last - began

    def end(self) -> None:
        """Quit the program."""
        os.write(self.master, b"\x03")
        time.sleep(0.05)
        os.write(self.master, b"\x03")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


def start_up(rounds: int = 7) -> None:
    """First byte and first rows, after a round in which Python compiles; CPU time tells more where others work."""
    first_bytes, first_rows, cpu = [], [], []
    for _ in range(rounds + 1):
        terminal = Terminal()
        while not terminal.seen:
            terminal.read(0.05)
        first_bytes.append(time.perf_counter() - terminal.began)
        first_rows.append(terminal.until(ROW))
        cpu.append(_cpu_s(terminal.process.pid))
        terminal.end()
    for name, times in (("first byte", first_bytes[1:]), ("first rows", first_rows[1:]), ("first rows, CPU", cpu[1:])):
        print(f"{name:<17} median {statistics.median(times) * 1e3:6.0f} ms   best {min(times) * 1e3:6.0f} ms")


def key_to_paint(rounds: int = 60) -> None:
    """Moving the cursor, and switching tabs of an open run."""
    for name, keys, opening, arguments in (
        ("move the cursor", (b"j", b"k"), b"", ()),
        ("in 1000 runs", (b"j", b"k"), b"", ("--many", "1000")),
        ("switch tabs", (b"]", b"["), b"\r", ()),
        ("open and leave !", (b"!", b"q"), b"", ()),
    ):
        terminal = Terminal(*arguments)
        terminal.until(ROW)
        terminal.quiet()
        if opening:
            terminal.key_to_paint(opening)
            terminal.quiet()
        times = sorted(terminal.key_to_paint(keys[index % 2]) for index in range(rounds))
        p95 = times[int(len(times) * 0.95)]
        print(f"{name:<17} median {statistics.median(times) * 1e3:6.1f} ms   p95  {p95 * 1e3:6.1f} ms")
        terminal.end()


def idle_cpu(name: str, words: bytes, *arguments: str, seconds: float = 8.0) -> None:
    """CPU of the program while nothing changes and nobody types."""
    terminal = Terminal(*arguments)
    terminal.until(words)
    terminal.quiet()
    before, terminal.seen = _cpu_s(terminal.process.pid), b""
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        terminal.read(0.1)
    used = _cpu_s(terminal.process.pid) - before
    print(f"{name:<15} {used / seconds * 100:6.2f} % of a core   {len(terminal.seen) / seconds:6.0f} bytes/s")
    terminal.end()


def _cpu_s(pid: int) -> float:
    """Of all its threads, in nanoseconds: an idle cockpit takes less in seconds than a clock tick has."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text(encoding="ascii").split()[0]) for one in threads) / 1e9


async def refreshes(rounds: int = 40) -> None:
    """CPU of one refresh of a screen, all values changed."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui")]
    import msgspec
    from canned_runs import NOW, summary
    from fake_cockpit import FakeCockpit

    from rltui.tui.app import CockpitApp
    from rltui.watch.snapshots import RunsSnapshot

    many = tuple(summary(f"grpo-{index:05d}", "running", "training", index, step=1, steps=9) for index in range(10_000))
    app = CockpitApp(FakeCockpit())
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        home = app.screen
        times = []
        for index in range(rounds):
            began = time.process_time()
            home.snapshot = RunsSnapshot(runs=many, taken_at=NOW + index)
            await pilot.pause()
            times.append(time.process_time() - began)
        print(f"10 000 runs: replace    {statistics.median(times) * 1e3:6.1f} ms")
        times = []
        for index in range(rounds):
            began = time.process_time()
            home.typed("filter", ("00", "009", "state:run 01", "")[index % 4])
            await pilot.pause()
            times.append(time.process_time() - began)
        print(f"10 000 runs: filter     {statistics.median(times) * 1e3:6.1f} ms")
        home.typed("filter", "")
        swept = tuple(msgspec.structs.replace(run, sweep=f"s-{place // 50}") for place, run in enumerate(many))
        times = []
        for index in range(rounds):
            began = time.process_time()
            home.snapshot = RunsSnapshot(runs=swept, taken_at=NOW + index)
            await pilot.pause()
            times.append(time.process_time() - began)
        print(f"10 000 runs of sweeps   {statistics.median(times) * 1e3:6.1f} ms")
        app.controller.stop()
        for nodes in (10, 100, 1000):
            for tab, name in ((0, "overview"), (1, "GPUs")):
                await _wall(pilot, nodes, tab, name, rounds)


async def letters_in_launch(rounds: int = 30) -> None:
    """CPU of a letter typed into a setting on the launch screen, with all that is worked out and painted anew."""
    from fake_cockpit import FakeCockpit

    from rltui.service.live_cockpit import LiveCockpit
    from rltui.service.sweep_points import NO_SWEEP
    from rltui.tui.app import CockpitApp

    class RealReviews(FakeCockpit):
        """Reviews as they are; all else is canned."""

        def __init__(self) -> None:
            super().__init__()
            self.real = LiveCockpit()

        def presets(self) -> Any:
            return self.real.presets()

        def review(self, preset: str, overrides: Any = (), cluster: str = "local", sweep: Any = NO_SWEEP) -> Any:
            return self.real.review(preset, overrides, cluster, sweep)

    for preset in ("local/grpo-tiny", "open-instruct-32b/code-20x4"):
        app = CockpitApp(RealReviews())
        async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
            from rltui.tui.screens.launch import LaunchScreen

            screen = LaunchScreen(preset)
            await app.push_screen(screen)
            while screen.review is None:
                await pilot.pause(0.02)
            await pilot.press("s", *"train.seed=1")
            times = []
            for index in range(rounds):
                await asyncio.sleep(0.3)  # what was typed before is checked by then
                before, began = screen.review, time.process_time()
                await pilot.press(str(index % 10) if index % 4 < 3 else "backspace")
                while screen.review is before:
                    await asyncio.sleep(0.01)
                times.append(time.process_time() - began)
            print(
                f"a letter in launch, {preset:<28} {statistics.median(times) * 1e3:6.1f} ms   "
                f"best {min(times) * 1e3:6.1f} ms"
            )
            app.controller.stop()


async def _wall(pilot: Any, nodes: int, tab: int, name: str, rounds: int) -> None:
    """One refresh of a tab of a run on so many nodes; what the pilot itself takes to wait is said beside it."""
    import msgspec
    from canned_runs import NOW, RUNS, gpu_hosts, snapshot

    from rltui.tui.screens.run import RunScreen

    run = msgspec.structs.replace(RUNS[1], nodes=nodes)
    base, hosts = snapshot(run), gpu_hosts(nodes, gpus=8)
    walls = [hosts, tuple(_busier(host) for host in hosts)]
    screen = RunScreen(run.identity, run, None, tab)
    await pilot.app.push_screen(screen)
    times, waits = [], []
    for index in range(rounds):
        began = time.process_time()
        await pilot.pause()
        waits.append(time.process_time() - began)
        picture = msgspec.structs.replace(base, hosts=walls[index % 2], taken_at=NOW + index)
        began = time.process_time()
        screen.snapshot = picture
        await pilot.pause()
        times.append(time.process_time() - began)
    print(
        f"{nodes:>5} nodes × 8: {name:<9} {statistics.median(times) * 1e3:6.1f} ms   "
        f"best {min(times) * 1e3:6.1f} ms   ({statistics.median(waits) * 1e3:.1f} of it the pilot's)"
    )
    pilot.app.pop_screen()


def _busier(host: HostSnapshot) -> HostSnapshot:
    """``host`` a moment later: every number has changed."""
    import msgspec

    gpus = tuple(
        msgspec.structs.replace(gpu, utilization_percent=gpu.utilization_percent * 0.7, memory_used_gib=50.0)
        for gpu in host.gpus
    )
    return msgspec.structs.replace(host, gpus=gpus, cpu_percent=host.cpu_percent + 9.0)


if __name__ == "__main__":
    print(f"{WIDTH}×{HEIGHT}, {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    start_up()
    key_to_paint()
    idle_cpu("runs alive", ROW)
    idle_cpu("nothing alive", b"no runs yet", "--empty")
    idle_cpu("steps go on", ROW, "--live")
    asyncio.run(refreshes())
    asyncio.run(letters_in_launch())
    shutil.rmtree(COMPILED, ignore_errors=True)
