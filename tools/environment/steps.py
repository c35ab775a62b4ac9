"""The steps of a set-up: make .venv, get uv, choose the build of torch, install and record."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import TYPE_CHECKING

from environment import machine, state
from environment.failures import SetupError
from environment.pip_settings import uv_environment
from environment.profiles import (
    CONSTRAINTS,
    CUDA_GIB,
    PROFILES,
    ROOT,
    UV,
    Profile,
    engine_file,
    fingerprint,
    requirements,
)

if TYPE_CHECKING:
    from environment.run import Runner
    from environment.state import State

VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")
UV_BINARY = str(VENV / "bin" / "uv")


def make_venv(runner: Runner, record: State) -> None:
    """Make .venv from scratch; its record says from the first moment on that it is not complete.

    Raises:
        SetupError: The folder holds something that is no environment, or venv failed.
    """
    place = VENV.resolve()  # a link to a roomier disk stays; venv itself refuses links
    if VENV.is_symlink() and not place.exists():
        raise SetupError(f".venv points to {place}, which does not exist.", "Make that folder, or remove the link.")
    if VENV.exists():
        ours = any((VENV / name).exists() for name in ("pyvenv.cfg", state.RECORD)) or not any(VENV.iterdir())
        if not ours:
            raise SetupError(f"{VENV} exists and is no virtual environment.", "Move it away.")
        for entry in VENV.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    VENV.mkdir(exist_ok=True)
    state.write(VENV, record)
    runner.step("virtual environment", [sys.executable, "-m", "venv", str(place)])


def get_uv(runner: Runner) -> None:
    """Install the pinned uv with pip, which reads its own configuration, and make uv read the same."""
    code, output = runner.run([UV_BINARY, "--version"]) if os.access(UV_BINARY, os.X_OK) else (1, "")
    if code or output.split()[:2] != UV.split("=="):
        runner.step(UV.replace("==", " "), [PYTHON, "-m", "pip", "install", "--quiet", "--retries", "2", UV])
    _, listing = runner.run([PYTHON, "-m", "pip", "config", "list"])
    runner.environ = {**os.environ, **uv_environment(listing, os.environ)}


def torch_arguments(runner: Runner, variant: str) -> list[str]:
    """Return the arguments that make uv take the right build of torch, and say so where that cannot be had.

    An index or folder of the user's that has a CPU build wins by itself, since ``2.13.0+cpu`` counts as newer than
    ``2.13.0``. Else uv knows where torch's own builds are; where that cannot be reached, the default build does it.
    """
    if os.environ.get("UV_TORCH_BACKEND"):
        return []
    ask = [UV_BINARY, "pip", "compile", "--no-deps", "--python", PYTHON, str(CONSTRAINTS / "overrides.txt")]
    if variant == "cpu":
        code, output = runner.run(ask)
        if code:
            runner.fail("torch", output)
        if "+cpu" in output or (sys.platform, platform.machine()) != ("linux", "x86_64"):
            return []
    backend = ["--torch-backend", "cpu" if variant == "cpu" else "auto"]
    code, _ = runner.run([*ask, *backend])
    if code == 0:
        return backend
    if variant == "cpu" and not any(VENV.glob("lib/python3.*/site-packages/torch")):
        print(f"  torch: no CPU build can be reached; taking the default one (CUDA, {CUDA_GIB} GiB more)", flush=True)
        machine.check_room(VENV, PROFILES["demo"].cpu_gib + CUDA_GIB)
    return []


def install_command(runner: Runner, profile: Profile, record: State) -> list[str]:
    """Return the command that installs ``profile``. Compiled bytecode halves the start of Ray and vLLM.

    Raises:
        SetupError: ``profile`` cannot be had on this Python.
    """
    major, minor, _ = record.python.split(".", 2)
    python = int(major), int(minor)
    if profile.engine and engine_file(profile, record.variant, python) is None:
        note = f"vLLM needs Python 3.11 or newer, this is {record.python}"
        if profile.name == "demo-vllm":
            raise SetupError(f"{note}.", "Name a newer one, as in: make demo ENGINE=vllm PYTHON=python3.12.")
        print(f"  left out: {note}", flush=True)
    torch = torch_arguments(runner, record.variant) if "trainers" in profile.extras else []
    words = requirements(profile, record.variant, python)
    return [UV_BINARY, "pip", "install", "--python", PYTHON, "--compile-bytecode", *torch, *words]


def install(runner: Runner, profile: Profile, record: State) -> None:
    """Install ``profile`` and record it. While packages change, the record says that they do.

    Raises:
        SetupError: uv failed.
    """
    command = install_command(runner, profile, record)
    before = state.read(VENV)
    state.write(VENV, record)
    try:
        runner.step("packages", command)
    except BaseException:
        resolved = any(line.startswith("Resolved") for line in runner.output)
        if before is not None and not resolved:  # uv resolves before it touches anything
            state.write(VENV, before)
        raise
    record.complete = True
    record.packages = state.count_packages(VENV)
    record.profiles[profile.name] = fingerprint(profile, record.variant)
    state.write(VENV, record)
