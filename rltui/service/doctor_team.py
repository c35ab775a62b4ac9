"""The doctor's look at a team: whether the group can reach shared runs, and whose run roots are found."""

from __future__ import annotations

from collections.abc import Iterator

from rltui.cluster.plain_text import plain
from rltui.service.doctor_checks import Check, ClusterUnderTest, ok, warning
from rltui.service.team import find_roots

REACH = """
group=$1 folder=$2
id -Gn | tr ' ' '\\n' | grep -qxF -- "$group" || echo "you are not in group $group"
while folder=$(dirname -- "$folder"); [ "$folder" != / ]; do
  set -- $(stat -L -c '%a %G' -- "$folder") || continue
  mode=$((0$1))
  [ $((mode & 1)) -ne 0 ] && continue
  [ $((mode & 8)) -ne 0 ] && [ "$2" = "$group" ] && continue
  echo "$group cannot pass $folder ($1 $2)"
done
exit 0
"""
"""Says who stands in the way of a group: a folder above the run root lets it through as its own, or as anybody."""


def check_team(tested: ClusterUnderTest) -> Iterator[Check]:
    """Whether sharing works as far as the profile wants any."""
    profile = tested.profile
    if profile.run_root_group:
        yield _sharing(tested, profile.run_root_group)
    if profile.team_run_roots:
        roots = find_roots(tested.relay, profile.team_run_roots)
        yield (
            ok("team", f"{len(roots)} run roots can be read: {', '.join(roots[:8])}")
            if roots
            else warning(
                "team", ", ".join(profile.team_run_roots), "no folder that you may read fits", "Ask a colleague."
            )
        )


def _sharing(tested: ClusterUnderTest, group: str) -> Check:
    done = tested.relay.run(["sh", "-c", REACH, "sh", group, tested.root.path], timeout_s=20)
    problems = [plain(line) for line in done.out.splitlines()]
    if problems:
        step = "Choose another run_root:, or chmod g+x (o+x) what is yours; access lists are not looked at."
        return warning("sharing", f"new runs are for group {group}", "; ".join(problems[:4]), step)
    return ok("sharing", f"group {group} can reach {tested.root.path}")
