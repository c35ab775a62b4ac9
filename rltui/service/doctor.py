"""Tests every link to a cluster and measures it, one result after the other, so that the first broken one is seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

import msgspec

from rltui.cluster.hosts import trainer_python
from rltui.cluster.machines import open_relay
from rltui.cluster.open_transport import Way, choose_way, open_transport
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import Prompter
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.remote_paths import RemoteRoot
from rltui.cluster.ssh_session import Opened
from rltui.cluster.transport import Transport
from rltui.errors import ClusterError, RltuiError
from rltui.paths import run_root
from rltui.service.doctor_checks import Check, ClusterUnderTest, failed, ok, warning
from rltui.service.doctor_links import check_env_file, check_python, check_round_trip, check_run_root, check_scheduler
from rltui.service.doctor_nodes import check_nodes
from rltui.service.team import find_roots

SLOW_SHELL_S = 3.0


class Unreachable(Exception):  # noqa: N818 (it ends the examination, and is none of the user's errors)
    """There is no use in looking further."""


def examine(
    profile: Profile, prompter: Prompter, *, confirm_nodes: Callable[[str], bool] | None = None
) -> Iterator[Check]:
    """Yield each result as soon as it is there.

    Args:
        profile: The cluster.
        prompter: Who answers what the login asks.
        confirm_nodes: Asked, with the command, before a job is run on a node; None: no job is run.
    """
    if profile.scheduler == "local":
        profile = msgspec.structs.replace(profile, python=trainer_python(), run_root=str(run_root()))
    try:
        way = choose_way(profile)
        yield ok("way", f"{way.name}: {way.reason}")
        transport = open_transport(profile, prompter)
    except RltuiError as error:
        yield failed("way", error)
        return
    relay = open_relay(profile, prompter, transport)
    try:
        tested = yield from _connect(profile, way, transport, relay)
        for name, link in LINKS:
            yield from _guarded(name, link(tested))
        if confirm_nodes is not None:
            yield from _guarded("node", check_nodes(tested, confirm_nodes))
    except Unreachable:
        return
    finally:
        relay.close()


def _guarded(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """A link that breaks in the middle of being tested is a result too."""
    began = time.monotonic()
    try:
        for check in checks:
            took_s = check.seconds or time.monotonic() - began
            yield msgspec.structs.replace(check, seconds=took_s)
            began = time.monotonic()
    except RltuiError as error:
        yield failed(name, error)


def _connect(
    profile: Profile, way: Way, transport: Transport, relay: RelayClient
) -> Generator[Check, None, ClusterUnderTest]:
    began = time.monotonic()
    try:
        hello = relay.hello()
    except RltuiError as error:
        yield failed("connection", error, is_unreachable=isinstance(error, ClusterError))
        raise Unreachable from error
    took_s = time.monotonic() - began
    for said in getattr(transport, "passed_over", ()):
        hint = f"{transport.place} answered instead; without that node nothing would."
        yield warning("login node", said, "one of the profile's login nodes cannot be reached", hint)
    opened = getattr(transport, "opened", None)
    if isinstance(opened, Opened):
        yield from _about_login(opened, way)
        took_s -= opened.connect_s + opened.auth_s + opened.shell_s
    yield ok("relay", f"python {hello.python}, {hello.user} on {hello.host}, {hello.cpus} CPUs", max(0.0, took_s))
    root = RemoteRoot(relay, profile)
    return ClusterUnderTest(profile=profile, relay=relay, hello=hello, root=root)


def _about_login(opened: Opened, way: Way) -> Iterator[Check]:
    if opened.host_key:
        yield ok("host key", opened.host_key, opened.connect_s)
        yield ok("login", opened.auth, opened.auth_s)
        if opened.shell_s > SLOW_SHELL_S:
            hint = "Look for what is slow in ~/.bashrc; conda's hook often is."
            yield warning(
                "shell", "the login shell is slow to start", "its start-up files take long", hint, opened.shell_s
            )
        else:
            yield ok("shell", "start of the login shell", opened.shell_s)
    else:
        yield ok("login", f"by {way.name}, start of the login shell included", opened.connect_s)
    if opened.greeting:
        lines = f"{len(opened.greeting)} line{'s' if len(opened.greeting) > 1 else ''}, such as {opened.greeting[0]!r}"
        cause = "start-up files print even where nobody reads; scp and rsync break on that"
        hint = "In ~/.bashrc print only where [[ $- == *i* ]]."
        yield warning("greeting", lines, cause, hint)


REACH = """
group=$1 folder=$2
case " $(id -Gn) " in *" $group "*) ;; *) echo "you are not in group $group" ;; esac
while folder=$(dirname -- "$folder"); [ "$folder" != / ]; do
  said=$(stat -L -c '%a %G' -- "$folder") || continue
  mode=$((0${said%% *}))
  [ $((mode & 1)) -ne 0 ] && continue
  [ $((mode & 8)) -ne 0 ] && [ "${said#* }" = "$group" ] && continue
  echo "$group cannot pass $folder ($said)"
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
            ok("team", f"{len(roots)} run root{'s' if len(roots) != 1 else ''} can be read: {', '.join(roots[:8])}")
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


LINKS: tuple[tuple[str, Callable[[ClusterUnderTest], Iterator[Check]]], ...] = (
    ("round trip", check_round_trip),
    ("scheduler", check_scheduler),
    ("run root", check_run_root),
    ("team", check_team),
    ("python", check_python),
    ("env file", check_env_file),
)
"""Each with the name under which an error in the middle of it is shown."""
