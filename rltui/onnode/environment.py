"""The environment of an attempt's processes: the job's, the files of variables, and the attempt's mark."""

import os
import re
import stat
from typing import Any, Dict, Set

from rltui.onnode import evidence, flight_recorder, rundir

ENV_FILE_VARIABLE = "RLTUI_ENV_FILE"
"""Where the path of the user's own file of secrets stands; the values are never in a script or an argument."""

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\s*([\"'])(.*?)\1\s*(?:\s#.*)?", re.DOTALL)
_COMMENT = re.compile(r"\s#.*", re.DOTALL)


class EnvironmentFileError(OSError):
    """The user's file of variables cannot be used; the text says why and what to do."""


def attempt_environment(attempt: str, job: Dict[str, Any]) -> Dict[str, str]:
    """The environment of Ray, trainer and sampler.

    Args:
        attempt: The attempt's directory, whose ``env`` file is read where there is one.
        job: What is to be started (``job.json``).

    Raises:
        EnvironmentFileError: The file that RLTUI_ENV_FILE names is missing, or others may read it.
    """
    environment = dict(os.environ)
    private = environment.get(ENV_FILE_VARIABLE, "")
    if private:
        environment.update(read_private_file(private))
    environment.update(read_environment(os.path.join(attempt, rundir.ENVIRONMENT)))
    environment[rundir.ATTEMPT_VARIABLE] = job["uuid"]
    environment["PYTHONPATH"] = job["code"]
    # a process that is killed takes what is in its buffer with it: the lines that say why
    environment["PYTHONUNBUFFERED"] = "1"
    # setproctitle would overwrite the environment that the kernel shows, and with it the mark above
    environment["SPT_NOENV"] = "1"
    # a RAY_ADDRESS of the user's shell would lead the trainer to another Ray
    for name in ("RAY_ADDRESS", rundir.DECIDER_VARIABLE):
        environment.pop(name, None)
    for name, value in flight_recorder.variables(evidence.folder(os.path.abspath(attempt))).items():
        environment.setdefault(name, value)  # a user's own wins
    return environment


def own_names(attempt: str, environment: Dict[str, str]) -> Set[str]:
    """Names of what the user's own file and the attempt's set, as they are in ``environment``."""
    private = environment.get(ENV_FILE_VARIABLE, "")
    found = set(read_environment(os.path.join(attempt, rundir.ENVIRONMENT)))
    return found | (set(read_private_file(private)) if private else set())


def read_environment(path: str) -> Dict[str, str]:
    """NAME=value lines of an environment file; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().split("\n")  # splitlines() would end a line also at U+2028 and the like
    except FileNotFoundError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name: value for name, value in pairs}  # noqa: C416 (the pairs are lists, not tuples)


def read_private_file(path: str) -> Dict[str, str]:
    """Variables of the user's own file: NAME=value, ``export NAME=value``, with quotes and comments. Nothing is run.

    Raises:
        EnvironmentFileError: It is missing, belongs to somebody else, or others may read it.
    """
    path = os.path.expanduser(path)
    try:
        with open(path, encoding="utf-8-sig") as stream:  # editors on Windows mark a file as UTF-8 by its first bytes
            # of the file that is open: its path may lead to another one by now
            found = os.fstat(stream.fileno())
            text = stream.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise EnvironmentFileError("env_file %s cannot be read: %s" % (path, reason)) from error
    if found.st_uid != os.getuid():
        raise EnvironmentFileError("env_file %s belongs to somebody else" % path)
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise EnvironmentFileError("env_file %s can be read by others; run: chmod 600 %s" % (path, path))
    matches = (_LINE.fullmatch(line) for line in text.split("\n") if not line.lstrip().startswith("#"))
    return {match.group(1): _unquoted(match.group(2)) for match in matches if match is not None}


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    return quoted.group(2) if quoted else _COMMENT.sub("", value).strip()
