"""The set-up itself: look, make .venv, get uv, install, and record it last."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from environment import machine, state
from environment.failures import SetupError, explain
from environment.pip_settings import uv_environment
from environment.profiles import (
    CUDA_GIB,
    PROFILES,
    ROOT,
    UV,
    Profile,
    engine_file,
    fingerprint,
    requirements,
    torch_pin,
)
from environment.run import Runner
from environment.state import State

if TYPE_CHECKING:
    from types import FrameType

VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")
UV_BINARY = str(VENV / "bin" / "uv")
VARIANTS = ("cpu", "gpu")


def up_to_date(profile: Profile, found: State | None) -> bool:
    """Tell whether .venv already holds ``profile``, by itself or as a part of a larger one."""
    if found is None or state.damage(VENV, found, wanted_python()) is not None:
        return False
    if os.environ.get("RLTUI_SETUP_VARIANT", found.variant) != found.variant:
        return False
    larger = (PROFILES[name] for name in (profile.name, *profile.within))
    return any(found.profiles.get(candidate.name) == fingerprint(candidate, found.variant) for candidate in larger)


def wanted_python() -> str | None:
    """Return this Python's ``3.11`` where the user chose it with PYTHON; otherwise the one in .venv may stay."""
    return "{}.{}".format(*sys.version_info[:2]) if os.environ.get("PYTHON") else None


def choose_variant(found: State | None) -> str:
    """Return ``cpu`` or ``gpu``: as asked, else as .venv is, else as the machine is.

    A folder shared by login and GPU nodes thus keeps what it was made with, whichever node looks at it.

    Raises:
        SetupError: RLTUI_SETUP_VARIANT is neither.
    """
    wish = os.environ.get("RLTUI_SETUP_VARIANT")
    if wish:
        if wish not in VARIANTS:
            raise SetupError(f"RLTUI_SETUP_VARIANT={wish} is not known.", "Say cpu or gpu, or leave it out.")
        return wish
    if found is not None:
        return found.variant
    return "gpu" if machine.has_gpu() else "cpu"


def room_gib(profile: Profile, variant: str, found: State | None) -> float:
    """Return how much room the installation needs beyond what is there."""
    size = {candidate.name: getattr(candidate, f"{variant}_gib") for candidate in PROFILES.values()}
    there = max((size[name] for name in found.profiles if name in size), default=0.0) if found else 0.0
    return float(max(size[profile.name] - there, 0.1))


def make_venv(runner: Runner, record: State) -> None:
    """Make .venv from scratch; its record says from the first moment on that it is not complete.

    Raises:
        SetupError: The folder holds something that is no environment, or venv failed.
    """
    if VENV.exists():
        ours = any((VENV / name).exists() for name in ("pyvenv.cfg", state.RECORD)) or not any(VENV.iterdir())
        if not ours:
            raise SetupError(f"{VENV} exists and is no virtual environment.", "Move it away.")
        for entry in VENV.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    VENV.mkdir(exist_ok=True)
    state.write(VENV, record)
    runner.step("virtual environment", [sys.executable, "-m", "venv", str(VENV)])


def get_uv(runner: Runner) -> None:
    """Install the pinned uv with pip, which reads its own configuration."""
    code, output = runner.run([UV_BINARY, "--version"]) if os.access(UV_BINARY, os.X_OK) else (1, "")
    if code or output.split()[:2] != UV.split("=="):
        runner.step(UV.replace("==", " "), [PYTHON, "-m", "pip", "install", "--quiet", "--retries", "2", UV])


def torch_arguments(runner: Runner, variant: str) -> list[str]:
    """Return the arguments that make uv take the right build of torch, and say which that is.

    An index or folder of the user's that has a CPU build wins by itself, since ``2.13.0+cpu`` counts as newer than
    ``2.13.0``. Else uv knows where torch's own builds are; where that cannot be reached, the default build does it.
    """
    if os.environ.get("UV_TORCH_BACKEND"):
        return []
    ask = [UV_BINARY, "pip", "install", "--python", PYTHON, "--dry-run", "--no-deps", torch_pin()]
    if variant == "cpu":
        code, output = runner.run(ask)
        if code:
            runner.fail("torch", output)
        settled = "+cpu" in output or "would make no changes" in output.lower()
        if settled or (sys.platform, platform.machine()) != ("linux", "x86_64"):
            return []
    backend = ["--torch-backend", "cpu" if variant == "cpu" else "auto"]
    code, _ = runner.run([*ask, *backend])
    if code == 0:
        return backend
    if variant == "cpu":
        print(
            f"  torch: no CPU build can be reached; taking the default one (CUDA, {CUDA_GIB:.0f} GiB more)", flush=True
        )
        machine.check_room(VENV, PROFILES["demo"].cpu_gib + CUDA_GIB)
    return []


def install(runner: Runner, profile: Profile, record: State) -> None:
    """Install ``profile`` with uv. Compiled bytecode halves the start of Ray and vLLM.

    Raises:
        SetupError: uv failed, or ``profile`` cannot be had on this Python.
    """
    variant = record.variant
    major, minor, _ = record.python.split(".", 2)
    python = int(major), int(minor)
    if profile.engine and engine_file(profile, variant, python) is None:
        note = f"vLLM needs Python 3.11 or newer, this is {record.python}"
        if profile.name == "demo-vllm":
            raise SetupError(f"{note}.", "Name a newer one, as in: make demo ENGINE=vllm PYTHON=python3.12.")
        print(f"  left out: {note}", flush=True)
    torch = torch_arguments(runner, variant) if "trainers" in profile.extras else []
    words = requirements(profile, variant, python)
    runner.step("packages", [UV_BINARY, "pip", "install", "--python", PYTHON, "--compile-bytecode", *torch, *words])


def set_up(profile: Profile) -> None:
    """Bring .venv to ``profile``.

    Raises:
        SetupError: With cause and next step.
    """
    machine.check_writable(ROOT)
    lock = machine.lock(ROOT)
    found = state.read(VENV)
    if up_to_date(profile, found):  # another set-up did it while this one waited
        return
    variant = choose_variant(found)
    reason = state.damage(VENV, found, wanted_python())
    if reason is None and found is not None and found.variant != variant:
        reason = f"it is for {found.variant}"
    fresh = reason is not None
    need_gib = room_gib(profile, variant, None if fresh else found)
    machine.check_room(VENV, need_gib)
    began = time.monotonic()
    version = None if fresh else state.python_version(VENV)
    record = State(str(VENV), version or platform.python_version(), variant)
    print(
        f"setup: {profile.name} into {VENV} (Python {record.python}, {variant}, about {need_gib:.1f} GiB)", flush=True
    )
    runner = Runner(VENV / "setup.log", lock, dict(os.environ))
    if fresh:
        if VENV.exists():
            print(f"  making .venv anew: {reason}", flush=True)
        make_venv(runner, record)
    elif found is not None:
        record.profiles = found.profiles
    finish(runner, profile, record)
    print(f"setup: ready in {time.monotonic() - began:.0f} s", flush=True)


def finish(runner: Runner, profile: Profile, record: State) -> None:
    """Install ``profile`` into a sound .venv and record it; until then the record says that it is not complete."""
    state.write(VENV, record)
    get_uv(runner)
    _, listing = runner.run([PYTHON, "-m", "pip", "config", "list"])
    runner.environ = {**os.environ, **uv_environment(listing, os.environ)}
    install(runner, profile, record)
    record.complete = True
    record.packages = state.count_packages(VENV)
    record.profiles[profile.name] = fingerprint(profile, record.variant)
    state.write(VENV, record)


class Stopped(BaseException):
    """SIGTERM arrived."""


def on_sigterm(_number: int, _frame: FrameType | None) -> None:
    """Turn SIGTERM into an exception, so that children are ended as on ctrl-c."""
    raise Stopped


def main(arguments: list[str]) -> int:
    """Run the set-up for the profile named in ``arguments`` and return the exit code.

    0 ready, 1 failed, 2 wrong words, 130 ctrl-c, 143 SIGTERM.
    """
    if len(arguments) != 1 or arguments[0] not in PROFILES:
        print(f"usage: python3 tools/setup_env.py {'|'.join(PROFILES)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, on_sigterm)
    profile = PROFILES[arguments[0]]
    try:
        if not up_to_date(profile, state.read(VENV)):
            os.chdir(ROOT)
            set_up(profile)
    except SetupError as error:
        print(f"setup: {error.message}\n  {error.hint}", file=sys.stderr)
        return 1
    except OSError as error:
        cause, hint = explain(str(error))
        print(f"setup: {cause}: {error}\n  {hint}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Stopped) as stop:
        print("\nsetup: stopped. The same command starts again; finished downloads are kept.", file=sys.stderr)
        return 130 if isinstance(stop, KeyboardInterrupt) else 143
    return 0
