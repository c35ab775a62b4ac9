"""All clusters that the user can name, merged from the site's, the user's and the project's files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.profile_files import ProfileFile, profile_files
from rltui.cluster.ssh_host import Hop, check_hop, parse_hop
from rltui.errors import UsageError
from rltui.layout.convert import to_struct
from rltui.layout.document import Document, Path_, dotted, parse
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.secret_words import SECRET_VALUE, is_secret_name

EXPECTED = "it holds the names of clusters, each with its keys below"
BUILTIN = "builtin"
_LOCAL_VALUES = {"summary": "this machine", "transport": "local", "scheduler": "local"}


class Profiles(Struct, frozen=True, kw_only=True):
    """Every profile, and where each of its keys comes from."""

    by_name: dict[str, Profile]
    """Those that can be used; ``local`` is always one of them."""
    origins: dict[str, dict[str, str]] = {}
    """By name and key: ``FILE:LINE`` of the file that won, or ``builtin``."""
    files: tuple[ProfileFile, ...] = ()
    """Where they were looked for, the one that yields to all others first."""
    problems: tuple[Problem, ...] = ()
    """What is wrong in those files; a cluster with a problem is not in ``by_name``."""
    broken: tuple[str, ...] = ()
    """Names of the clusters that are left out because of their problems."""

    def get(self, name: str) -> Profile:
        """The profile called ``name``.

        Raises:
            UsageError: There is none, or its entry has a problem; the message lists them.
        """
        if name in self.by_name:
            return self.by_name[name]
        if name in self.broken:
            own = [str(problem) for problem in self.problems if self._cluster_of(problem) == name]
            raise UsageError(f"The profile of cluster {name!r} cannot be used:", "\n  ".join(own))
        near = difflib.get_close_matches(name, self.by_name, n=1)
        known = f"Known: {', '.join(self.by_name)}. `rltui setup` adds one."
        raise UsageError(f"There is no cluster {name[:60]!r}.", f"Did you mean {near[0]!r}? {known}" if near else known)

    def _cluster_of(self, problem: Problem) -> str:
        """The broken cluster that ``problem`` is about; names may have dots, and one may begin another."""
        fitting = (name for name in self.broken if f"{problem.key}.".startswith(f"{name}."))
        return max(fitting, key=len, default="")

    @property
    def notes(self) -> tuple[str, ...]:
        """One line a file that is there and not used, and one a problem."""
        unused = [f"{file.path}: {file.note}" for file in self.files if not file.used and file.note != "absent"]
        return (*unused, *(str(problem) for problem in self.problems))


def load_profiles() -> Profiles:
    """Read all profiles; what is wrong in a file takes away that cluster only, never the others."""
    return merge_profiles(profile_files())


def merge_profiles(files: Sequence[ProfileFile]) -> Profiles:
    """Merge the files that are used; each key is taken whole from the last file that has it."""
    documents, problems = _parse(files)
    merged = _Merged()
    for document in documents:
        merged.add(document)
    by_name: dict[str, Profile] = {}
    broken: list[str] = []
    for name in merged.values:
        profile, wrong = merged.profile(name)
        problems.extend(wrong)
        if profile is None:
            broken.append(name)
        else:
            by_name[name] = profile
    by_name.setdefault(LOCAL, Profile(name=LOCAL, **_LOCAL_VALUES))  # type: ignore[arg-type]
    return Profiles(
        by_name=by_name, origins=merged.origins, files=tuple(files), problems=tuple(problems), broken=tuple(broken)
    )


def _parse(files: Sequence[ProfileFile]) -> tuple[list[Document], list[Problem]]:
    documents: list[Document] = []
    problems: list[Problem] = []
    for file in files:
        if not file.used or not _says_anything(file.text):
            continue
        try:
            documents.append(parse(file.text, file.path, EXPECTED))
        except LayoutError as error:
            problems.extend(error.problems)
    return documents, problems


def _says_anything(text: str) -> bool:
    """A file of comments alone is what remains when the last cluster is commented out."""
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith("#") and line != "---" for line in lines)


class _Merged:
    """Plain values by cluster and key, each with the place that it comes from."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {LOCAL: dict(_LOCAL_VALUES)}
        self.origins: dict[str, dict[str, str]] = {LOCAL: dict.fromkeys(_LOCAL_VALUES, BUILTIN)}
        self._lines: dict[Path_, int] = {}
        self._files: dict[Path_, str] = {}
        self._problems: dict[str, list[Problem]] = {}

    def add(self, document: Document) -> None:
        """Let the keys of ``document`` win over those that are there."""
        for name, keys in document.values.items():
            self._place((name,), document)
            self.values.setdefault(name, {})
            self.origins.setdefault(name, {})
            if not isinstance(keys, dict):
                problem = Problem("must be a mapping of keys to values", *document.place((name,)), name)
                self._problems.setdefault(name, []).append(problem)
                continue
            for key, value in keys.items():
                self._take(document, name, key, value)

    def _take(self, document: Document, name: str, key: str, value: Any) -> None:
        old = [path for path in self._lines if path[:2] == (name, key)]
        for path in old:
            del self._lines[path], self._files[path]
        for path in document.lines:
            if path[:2] == (name, key):
                self._place(path, document)
        self.values[name][key] = value
        self.origins[name][key] = "{}:{}".format(*document.place((name, key)))

    def _place(self, path: Path_, document: Document) -> None:
        self._files[path], self._lines[path] = document.place(path)

    def profile(self, name: str) -> tuple[Profile | None, Sequence[Problem]]:
        """The typed profile, or every problem of it; none of them repeats a secret."""
        values = self.values[name]
        match values.get("host"):
            case [str(first), *others]:
                values = {**values, "host": first, "other_hosts": others}
                self.origins[name]["other_hosts"] = self.origins[name]["host"]
        document = Document({name: {**values, "name": name}}, self._lines, "", self._files)
        secrets = list(_secrets(document, (name,), values))
        problems = [*self._problems.get(name, []), *secrets]
        if "name" in values:
            problems.append(Problem("is not a key: the name stands above", *document.place((name, "name")), name))
        if problems:
            return None, problems
        try:
            profile: Profile = to_struct(dict[str, Profile], document)[name]
        except LayoutError as error:
            return None, error.problems
        problems = list(_strange(profile, document))
        if profile.hosts:
            profile = structs.replace(profile, host=profile.hosts[0])
        return None if problems else profile, problems


def _secrets(document: Document, path: Path_, value: Any) -> Iterator[Problem]:
    """Secrets below ``path``: profiles are shown on screens and committed to repositories."""
    if isinstance(value, dict):
        for key, item in value.items():
            here = (*path, key)
            if is_secret_name(str(key)):
                yield _secret(document, here)
            else:
                yield from _secrets(document, here, item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(document, (*path, index), item)
    elif isinstance(value, str) and (SECRET_VALUE.search(value) or _sets_secret(value) or _opens_door(path, value)):
        yield _secret(document, path)


def _opens_door(path: Path_, value: str) -> bool:
    """Whether it is an address to which anybody could write in the user's name."""
    return "notify" in path and "://" in value


def _sets_secret(line: str) -> bool:
    """Whether a shell line gives a secret variable its value: ``export HF_TOKEN=…``, but not ``HF_TOKEN=$(cat …)``."""
    for word in line.replace(";", " ").split():
        name, equals, value = word.partition("=")
        if equals and is_secret_name(name) and value.strip("\"'") and not value.strip("\"'").startswith(("$", "`")):
            return True
    return False


def _secret(document: Document, path: Path_) -> Problem:
    hint = "keep it in a file of mode 0600 there, and name that in env_file"
    return Problem("looks like a secret; profiles hold none", *document.place(path), dotted(path), hint)


def _strange(profile: Profile, document: Document) -> Iterator[Problem]:
    """What no machine could be called, and keys that contradict each other."""
    hosts = [(("host",), profile.host), *((("hosts", place), host) for place, host in enumerate(profile.hosts))]
    hosts += [(("other_hosts", place), host) for place, host in enumerate(profile.other_hosts)]
    hops = [(("proxy_jump", place), hop) for place, hop in enumerate(profile.proxy_jump)]
    for keys, text in (*hosts, *hops):
        path: Path_ = (profile.name, *keys)
        try:
            if keys[0] == "proxy_jump":
                parse_hop(text)
            elif text or keys[0] == "other_hosts":
                check_hop(Hop(text, profile.user, profile.port))
        except ValueError as error:
            yield Problem(str(error), *document.place(path), dotted(path))
    variable, here = profile.notify.webhook, (profile.name, "notify", "webhook")
    if variable and not (variable.isidentifier() and variable.isascii()):
        hint = "such as SLACK_WEBHOOK, which a line SLACK_WEBHOOK=https://… of env_file sets"
        yield Problem("must be the name of a variable", *document.place(here), dotted(here), hint)
    if profile.transport in ("paramiko", "openssh") and not profile.host:
        hint = "add host:, or use transport: local"
        yield Problem(f"{profile.transport} needs a host", *_at(document, profile, "transport"), hint)
    if profile.transport == "local" and profile.host:
        yield Problem("is this machine, yet there is a host", *_at(document, profile, "transport"), "remove one")
    if profile.hosts and (profile.scheduler != "hosts" or profile.host):
        hint = "with scheduler: hosts, instead of host:"
        yield Problem("names several machines without a scheduler", *_at(document, profile, "hosts"), hint)
    if profile.scheduler == "hosts" and profile.container.runtime not in ("", "none"):
        hint = "install the trainers there, and name their python"
        yield Problem("runs on hosts are in no container yet", *_at(document, profile, "container"), hint)
    if profile.scheduler == "local" and profile.host:
        hint = "slurm, ray or hosts; or log in there and run rltui on it"
        yield Problem("local runs jobs on this machine only", *_at(document, profile, "scheduler"), hint)
    if profile.scheduler == "ray" and not profile.ray_address:
        hint = "add ray_address:, such as http://127.0.0.1:8265"
        yield Problem("ray needs the address of the cluster's dashboard", *_at(document, profile, "scheduler"), hint)
    if profile.ray_address and not re.match(r"https?://[^/\s]+/?\Z", profile.ray_address):
        hint = "such as http://127.0.0.1:8265 or https://ray.example.org"
        yield Problem("is no address of a dashboard", *_at(document, profile, "ray_address"), hint)


def _at(document: Document, profile: Profile, key: str) -> tuple[str, int, str]:
    return (*document.place((profile.name, key)), dotted((profile.name, key)))


def as_keys(profile: Profile) -> dict[str, Any]:
    """The keys of ``profile`` that differ from their defaults, as they would stand in a file."""
    values: dict[str, Any] = msgspec.to_builtins(profile)
    defaults: dict[str, Any] = msgspec.to_builtins(Profile(name=profile.name))
    return {key: value for key, value in values.items() if value != defaults[key]}
