"""What each profile installs, as data, and the words that tell uv so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints"
UV = "uv==0.13.8"
LOCK_INPUTS = ("lock.txt", "build.txt", "overrides.txt", "overrides-cpu.txt", "engine-cpu.txt", "engine-gpu.txt")


@dataclass(frozen=True)
class Profile:
    """One use of the project and what has to be installed for it.

    Attributes:
        extras: Extras of pyproject.toml.
        engine: Whether vLLM belongs to it.
        cpu_gib: Room it takes on disk without a GPU.
        gpu_gib: Room it takes with the CUDA builds.
        within: Profiles that contain this one, so that it is there wherever one of them is.
    """

    name: str
    extras: tuple[str, ...]
    engine: bool
    cpu_gib: float
    gpu_gib: float
    within: tuple[str, ...]


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("base", (), False, 0.2, 0.2, ("check", "demo", "demo-vllm", "test")),
        Profile("check", ("test", "dev"), False, 0.4, 0.4, ("test",)),
        Profile("demo", ("trainers",), False, 1.7, 5.6, ("demo-vllm", "test")),
        Profile("demo-vllm", ("trainers",), True, 2.7, 9.2, ("test",)),
        Profile("test", ("trainers", "eight-bit", "tasks", "pictures", "test", "peers", "dev"), True, 3.7, 10.2, ()),
    )
}
CUDA_GIB = 3.5
"""Extra room for the default build of torch where no CPU build can be had."""


def engine_file(profile: Profile, variant: str, python: tuple[int, int]) -> Path | None:
    """Return the requirements file of vLLM for ``variant`` (``cpu`` or ``gpu``); None where it is not installed."""
    if not profile.engine or python < (3, 11):
        return None
    return CONSTRAINTS / f"engine-{variant}.txt"


def requirements(profile: Profile, variant: str, python: tuple[int, int]) -> list[str]:
    """Return the arguments of ``uv pip install`` that name what to install, and at which versions."""
    words = ["--editable", f".[{','.join(profile.extras)}]" if profile.extras else "."]
    engine = engine_file(profile, variant, python)
    if engine is not None:
        words += ["--requirements", str(engine)]
    words += ["--constraints", str(CONSTRAINTS / "lock.txt"), "--build-constraints", str(CONSTRAINTS / "build.txt")]
    words += ["--overrides", str(CONSTRAINTS / "overrides.txt")]
    if variant == "cpu":
        words += ["--overrides", str(CONSTRAINTS / "overrides-cpu.txt")]
    return words


def fingerprint(profile: Profile, variant: str) -> str:
    """Return a hash of everything that decides what ``profile`` installs; linter settings do not."""
    digest = hashlib.sha256(f"{UV} {profile} {variant}".encode())
    project = (ROOT / "pyproject.toml").read_bytes()
    digest.update(project.partition(b"\n[tool.")[0])
    for name in LOCK_INPUTS:
        digest.update((CONSTRAINTS / name).read_bytes())
    return digest.hexdigest()
