"""All rules as one page of Markdown: ``docs/checks.md``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rltui.check.catalog import RULES
from rltui.check.live import LIVE_REGISTRY

FAMILIES = {
    "B": "Batch arithmetic and algorithm",
    "D": "Data, model and rewards",
    "E": "Engines and tensor parallelism",
    "F": "Start-up assertions of other systems",
    "H": "Host and card",
    "M": "Memory",
    "P": "Placement and pools",
    "S": "Slurm",
    "T": "Tracking",
    "X": "Secrets and personal things",
}

_OPENING = """\
# Checks

For people whose layout or script got a finding.
`rltui check FILE… [key=value …]` asks these rules, offline, before anything is queued. Errors stop a launch, warnings
do not (`--strict` makes them), notes inform. Codes are stable for ever. `rltui explain CODE` prints one of them;
`--fix` shows the overrides that would settle what was found, and `--fix --write` writes them into the file.

A file that is no layout (unreadable, not YAML, unknown or missing keys, wrong values) is reported under the code L001,
with every problem's file, line and key, and exit code 2.

`--cluster NAME` also asks the rules about a cluster, offline, of its profile; `--cluster NAME --live` asks the cluster
itself what it has right now (three calls to Slurm, one look at the disk and the model cache). A cluster that does not
answer is exit code 3. What nobody could tell is not checked.

`FILE` may be a launch script or configuration of another system as well (`docs/importing.md` names them): `rltui check
run.sh`. It is asked these rules for the layout that it comes to, and its own system's start-up assertions, the codes
F101 to F999, read from that system's validation at the commit that is named. Findings stand at the script's own line
and setting, and fixes are in its own words. What the script leaves open is not asserted; a script of which no layout
can be made has the warning L002. `--set key=value` gives a setting that the script leaves open, `--gpu NAME` the card.

This page is printed by `rltui explain --markdown`."""


def markdown() -> Iterator[str]:
    """The lines of docs/checks.md: all rules by family, with what each refuses and why."""
    yield _OPENING
    rules = sorted(RULES.values(), key=lambda rule: rule.code)
    for family, members in groupby(rules, key=lambda rule: rule.code[0]):
        yield f"\n## {family}: {FAMILIES.get(family, family)}"
        for rule in members:
            where = ", with --cluster" if rule.code in LIVE_REGISTRY else ""
            yield f"\n**{rule.code}** ({rule.severity}{where}): {rule.title}"
            if rule.story:
                yield f"\n{rule.story}"
