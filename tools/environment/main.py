"""The set-up itself: see what is there, decide what is to be done, do it, and turn every failure into two lines."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from typing import TYPE_CHECKING

from environment import machine, state
from environment.failures import SetupError, explain
from environment.profiles import PROFILES, ROOT, Profile, fingerprint
from environment.run import Runner
from environment.state import State
from environment.steps import VENV, get_uv, install, make_venv

if TYPE_CHECKING:
    from types import FrameType

VARIANTS = ("cpu", "gpu")


def up_to_date(profile: Profile, found: State | None) -> bool:
    """Tell whether .venv already holds ``profile``, by itself or as a part of a larger one."""
    if found is None or not found.complete or state.damage(VENV, found, wanted_python()) is not None:
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
    owner = state.other_owner(VENV, found)
    if owner is not None:
        raise SetupError(
            f"{VENV} is the environment of another checkout, {owner}: making it anew would take it from there.",
            f"Remove the link {VENV}: the same command then makes one of its own.",
        )
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
    get_uv(runner)
    install(runner, profile, record)
    print(f"setup: ready in {time.monotonic() - began:.0f} s", flush=True)


class Stopped(BaseException):
    """A signal asked for an end; its number is the argument."""


def on_signal(number: int, _frame: FrameType | None) -> None:
    """Turn a signal into an exception, so that children are ended as on ctrl-c."""
    raise Stopped(number)


def main(arguments: list[str]) -> int:
    """Run the set-up for the profile named in ``arguments`` and return the exit code.

    0 ready, 1 failed, 2 wrong words, 130 ctrl-c, 128 + number of another signal.
    """
    if len(arguments) != 1 or arguments[0] not in PROFILES:
        print(f"usage: python3 tools/setup_env.py {'|'.join(PROFILES)}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
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
        return 130 if isinstance(stop, KeyboardInterrupt) else 128 + stop.args[0]
    return 0
