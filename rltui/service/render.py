"""The job script of a layout, or of another system's script, on a cluster, before anything is made or submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.check.reporters import as_text
from rltui.check.run import check_file
from rltui.cluster.profile import Profile
from rltui.cluster.profiles import load_profiles
from rltui.errors import UsageError
from rltui.layout.presets import resolve
from rltui.runs.script import preview_script

if TYPE_CHECKING:
    from rltui.service.wishes import Wishes


class Rendered(Struct, frozen=True, kw_only=True):
    """A job script, and what there is to say of it."""

    cluster: str
    script: str
    ok: bool
    said: tuple[str, ...]
    """What a check finds in the layout, or what was read of another system's script, a line each."""


def render(source: str, overrides: Sequence[str] = (), cluster: str = "") -> Rendered:
    """Render the script of the preset or file ``source`` for the profile ``cluster``; empty: one without any setting.

    Raises:
        UsageError: There is no such layout, it cannot be read, or there is no such cluster.
        RltuiError: A value cannot stand in a script.
    """
    report = check_file(resolve(source), overrides)
    if report.loaded is None:
        first = report.findings[0].message if report.findings else "it cannot be read"
        raise UsageError(f"{source} is no layout: {first}", f"`rltui check {source}` shows everything.")
    profile = _profile(cluster)
    script = preview_script(report.loaded.layout, profile)
    said = tuple(as_text(report)) if report.findings else ()
    return Rendered(cluster=profile.name, script=script, ok=report.ok, said=said)


def render_script(source: str, wishes: Wishes, cluster: str = "") -> Rendered:
    """Render the job that wraps the launch script ``source`` on the profile ``cluster``.

    Raises:
        UsageError: The script cannot be read, nobody says how many GPUs it takes, or there is no such cluster.
    """
    from rltui.service.scripts import prepare  # a layout needs no importers

    profile = _profile(cluster)
    prepared = prepare(source, wishes, profile)
    said = (*prepared.notes, *(f"error: {problem}" for problem in prepared.problems))
    return Rendered(
        cluster=profile.name,
        script=preview_script(prepared.job, profile),
        ok=not prepared.problems,
        said=tuple(f"  {line}" for line in said),
    )


def _profile(name: str) -> Profile:
    if not name:
        return Profile(name="slurm")
    profile = load_profiles().get(name)
    if profile.scheduler != "slurm":
        raise UsageError(
            f"Runs on {name} have no job script: its scheduler is {profile.scheduler}.",
            "Leave --cluster out for Slurm's.",
        )
    return profile
