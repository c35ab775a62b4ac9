"""Launching: check, make the run, journal, submit once."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from rltui.check.findings import Finding
from rltui.check.live import check_on
from rltui.check.live_subject import LIVE_REGISTRY
from rltui.check.run import Report, check_file
from rltui.cluster.facts import ClusterFacts
from rltui.cluster.profile import Profile, in_partition
from rltui.cluster.slurm.replies import SlurmUnansweredError
from rltui.errors import MissingExtraError, RltuiError, UsageError
from rltui.layout.origins import FREEST_PARTITION, origins
from rltui.layout.presets import resolve
from rltui.layout.schema import Layout
from rltui.paths import is_file
from rltui.runs.directory import MODULES, optional_modules
from rltui.service.allocations import share_of
from rltui.service.bad_nodes import offers
from rltui.service.context import Context
from rltui.service.eligible import freest_partition
from rltui.service.live_facts import facts_through
from rltui.service.memory_peaks import measured_findings
from rltui.service.submit import Launched, submit_attempt, submit_new
from rltui.service.this_machine import machine_facts

MOST_LINKS = 50
MOST_TOLD = 4
"""Errors that a refusal names."""

LIMITS_OF_PARTITION = frozenset({"S611", "S612"})
"""Findings about what the profile says of its own partition."""

NOT_BUNDLED = "E390"
"""The finding that names what the bundled trainers cannot run; a note in a check, an obstacle to a launch."""

INSTALLS = {
    "vllm": "Install it: pip install 'rltui[vllm]' (in a checkout: make demo ENGINE=vllm), "
    "or launch with roles.rollout.engine=hf",
    "peft": "Install it: pip install 'rltui[trainers]', or launch with roles.learner.lora_rank=0",
    "bitsandbytes": "Install it: pip install 'rltui[eight-bit]', or launch with roles.learner.optimizer=adamw",
}
"""What to do where a module is missing that only some layouts need."""


class RefusedError(RltuiError):
    """Findings at error level stand in the way of a launch.

    Args:
        report: The report with the findings.
        cluster: The cluster that was asked too, so that a check that asks it shows the same; empty: none was.
        overrides: What the layout was launched with.

    Attributes:
        report: The report with the findings.
    """

    def __init__(self, report: Report, cluster: str = "", overrides: Sequence[str] = ()) -> None:
        errors = [finding for finding in report.findings if finding.severity == "error"]
        told = [f"{one.code} {one.key + ': ' if one.key else ''}{one.message}" for one in errors[:MOST_TOLD]]
        more = f" (and {len(errors) - MOST_TOLD} more)" if len(errors) > MOST_TOLD else ""
        live = any(one.code in LIVE_REGISTRY for one in errors)
        fixes = [word for one in errors[:1] for word in one.fix]
        check = shlex.join(["rltui", "check", report.file, *overrides])
        check += f" --cluster {cluster} --live" if cluster and live else ""
        says = [f"Fix: {shlex.join(fixes)}"] if fixes else []
        if not fixes and is_file(Path(report.file)):  # a run's own layout may lie on another machine
            says = [f"`{check}` shows everything."]
        if live:
            says.append("The cluster says so; --unchecked submits all the same.")
        where = "" if report.readable else f"{report.file}: "
        super().__init__(f"Not launched: {where}{'; '.join(told)}{more}", " ".join(says))
        self.report = report
        self.exit_code = 1 if report.readable else 2


def review(source: str, overrides: Sequence[str], profile: Profile) -> Report:
    """Check the preset or file ``source`` with ``overrides`` for the cluster of ``profile``, which is not asked.

    Raises:
        UsageError: There is no such preset or file.
    """
    return advised(launchable(check_file(resolve(source), overrides)), profile)


def advised(report: Report, profile: Profile, facts: ClusterFacts | None = None) -> Report:
    """``report`` with what the cluster says against it: its profile, and ``facts`` where it was asked.

    A profile that nobody has compared with the cluster only warns, except of its limits, which it sets itself; and
    these are those of its own partition. That this machine is one node is certain.
    """
    if profile.scheduler == "local":
        return check_on(report, profile, _machine(report))
    found = check_on(report, profile, facts)
    named = report.loaded.layout.slurm.partition if report.loaded else ""
    own = named in ("", profile.partition, *profile.partitions)

    def is_certain(code: str) -> bool:
        return own if code in LIMITS_OF_PARTITION else facts is not None or code not in LIVE_REGISTRY

    findings = tuple(
        one if one.severity != "error" or is_certain(one.code) else structs.replace(one, severity="warning")
        for one in found.findings
    )
    return structs.replace(found, findings=findings)


def chosen_partition(context: Context, report: Report) -> str:
    """The one of the profile's partitions that has the layout's card and most nodes free for it right now.

    Empty where the layout names one, or there is nothing to choose.
    """
    profile = context.cluster.profile
    if report.loaded is None:
        return ""
    return freest_partition(
        context.cluster, report.loaded.layout, lambda name: not _obstacles(report, in_partition(profile, name), name)
    )


def _obstacles(report: Report, profile: Profile, partition: str) -> list[str]:
    """Codes of what a partition's profile says against the layout."""
    assert report.loaded is not None
    layout = structs.replace(report.loaded.layout.slurm, partition=partition)
    loaded = structs.replace(report.loaded, layout=structs.replace(report.loaded.layout, slurm=layout))
    found = check_on(structs.replace(report, loaded=loaded), profile)
    return [one.code for one in found.findings if one.severity == "error" and one.code in LIVE_REGISTRY]


def asked(context: Context, report: Report) -> Report:
    """``report`` with what the cluster says of it right now; what it cannot tell in a moment is not held against it."""
    profile, client = context.cluster.profile, context.cluster.client
    if profile.scheduler == "local" or report.loaded is None or not report.ok:
        return advised(report, profile)
    try:
        return advised(report, profile, facts_through(client, profile, report.loaded.layout))
    except SlurmUnansweredError:  # then it takes no job either, and says why
        return advised(report, profile)


def _machine(report: Report) -> ClusterFacts | None:
    """This machine's GPUs, where the layout wants any: the driver takes a moment to list them."""
    wants_any = report.loaded is not None and not report.loaded.layout.hardware.on_cpu
    return machine_facts() if wants_any else None


def launchable(report: Report) -> Report:
    """``report`` with what the bundled trainers cannot run as errors: a sound layout, but not one to launch here."""
    findings = tuple(
        structs.replace(finding, severity="error") if finding.code == NOT_BUNDLED else finding
        for finding in report.findings
    )
    return structs.replace(report, findings=tuple(sorted(findings, key=lambda finding: finding.severity != "error")))


def launch(
    context: Context,
    source: str,
    overrides: Sequence[str] = (),
    *,
    chain: int = 1,
    unchecked: bool = False,
    after_job: str = "",
    sweep: str = "",
    into: str = "",
    tell: Callable[[Finding], None] | None = None,
) -> Launched:
    """Check ``source``, make a run of it and submit its first attempt.

    Args:
        context: Where.
        source: A preset's name or a file.
        overrides: Changes, ``key.path=value``.
        chain: Jobs to submit, each to start when the one before has ended: for runs longer than a time limit. The
            trainer of each goes on from the newest checkpoint, and those that find nothing to do end at once.
        unchecked: Do not ask the cluster first whether it could run this, nor heed what its profile says.
        after_job: Id of a Slurm job that must have ended, however, before this one starts.
        sweep: What all runs of its sweep have in common.
        into: Id of a running job of the user's that it is to run in, on nodes that no run there has; empty: a job is
            submitted. The cluster is not asked then: its job is there.
        tell: Is told, before anything is submitted, of nodes that are remembered as bad and may be used, and of the
            memory that earlier runs like this one took.

    Raises:
        RefusedError: A finding stands in the way.
        MissingExtraError: The trainers are not installed where they would run.
        RltuiError: The run directory or the journal cannot be written, or the submission failed. Links of a chain that
            were submitted before that stay.
    """
    if not 1 <= chain <= MOST_LINKS:
        raise UsageError(f"A chain has 1 to {MOST_LINKS} jobs, not {chain}.")
    if chain > 1 and context.cluster.profile.scheduler != "slurm":
        raise UsageError(f"{context.name} has no Slurm, so no time limit that a chain would help over.", "Launch once.")
    if into:
        report, name = launchable(check_file(resolve(source), overrides)), ""
    else:
        report, name = checked(context, source, overrides, unchecked=unchecked)
    if not report.ok or report.loaded is None:
        raise RefusedError(report, context.name, overrides)
    layout = report.loaded.layout
    if into:
        return submit_new(context, layout, share=share_of(context, into, layout), origins=origins(report.loaded))
    if context.cluster.profile.scheduler == "local":
        require_modules(layout)
    if tell is not None:
        for finding in remembered(context, layout):
            tell(finding)
    known = origins(report.loaded) | ({"slurm.partition": FREEST_PARTITION} if name else {})
    first = submit_new(context, layout, after_job=after_job, sweep=sweep, origins=known)
    _submit_rest(context, layout, first, chain, known)
    return first


def _submit_rest(context: Context, layout: Layout, first: Launched, chain: int, known: Mapping[str, str]) -> None:
    """Submit the jobs of a chain behind its ``first``, each to start when the one before has ended."""
    link = first
    try:
        for number in range(2, chain + 1):
            link = submit_attempt(context, first.run_id, number, layout, after_job=link.job_id, origins=known)
    except RltuiError as error:
        error.message += f" {link.attempt} of {chain} jobs of {first.run_id} were submitted before, and stay."
        raise


def checked(context: Context, source: str, overrides: Sequence[str], *, unchecked: bool = False) -> tuple[Report, str]:
    """What a launch goes by: the findings of ``source``, the cluster's word too, and the partition that was chosen.

    Args:
        context: Where.
        source: A preset's name or a file.
        overrides: Changes, ``key.path=value``.
        unchecked: Do not ask the cluster, nor heed what its profile says.
    """
    report = launchable(check_file(resolve(source), overrides))
    name = chosen_partition(context, report)
    if name:
        report = launchable(check_file(resolve(source), [*overrides, f"slurm.partition={name}"]))
    if context.cluster.profile.scheduler == "local" or not unchecked:
        report = asked(context, report)
    return report, name


def remembered(context: Context, layout: Layout) -> tuple[Finding, ...]:
    """Nodes that are remembered as bad and may be used, and the memory that earlier runs like this one took."""
    return (*offers(context.cluster, layout), *measured_findings(context, layout))


def require_modules(layout: Layout) -> None:
    """Refuse early, in this process, what the trainers could not import on this machine.

    Raises:
        MissingExtraError: Names the missing packages and the command that installs them.
    """
    missing = [name for name in MODULES if _is_missing(name)]
    if missing:
        raise MissingExtraError(
            f"The trainers need {', '.join(missing)}, which this Python does not have.",
            "Install them: pip install 'rltui[trainers]'",
        )
    for name in filter(_is_missing, optional_modules(layout)):
        raise MissingExtraError(f"The layout needs {name}, which this Python does not have.", INSTALLS[name])


def _is_missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None
