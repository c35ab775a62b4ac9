"""Telling of an attempt, so that nobody is told twice of one event, whoever sees it first.

A mark in the attempt's directory, taken exclusively, stands for one kind of event and one channel. Who could not tell
gives it back, so that another side may: a compute node may have no network, the login node has. A message that may have
arrived keeps its mark.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any, Dict, List, Mapping, Optional

from rltui.onnode import rundir
from rltui.onnode.environment import ENV_FILE_VARIABLE, EnvironmentFileError, read_private_file
from rltui.onnode.notify import CHANNELS, DEADLINE_S, has_desktop, tell, wanted

TOLD = b"told\n"
POLL_S = 0.2

WAIT_S = DEADLINE_S + 5.0
"""How long another side may be about to tell, before it counts as told."""


def mark(attempt: str, event: str, channel: str) -> str:
    """The file that stands for having told of ``event`` by ``channel``."""
    return os.path.join(attempt, ".told-%s-%s" % (event.replace(" ", "-"), channel))


def tell_once(
    attempt: str,
    settings: Dict[str, Any],
    message: Dict[str, Any],
    environment: Optional[Mapping[str, str]] = None,
    wait_s: float = 0.0,
) -> List[Dict[str, Any]]:
    """Tell ``message`` by those channels that nobody has told this attempt's event by; what came of it is an event.

    Args:
        attempt: The attempt's directory.
        settings: As for ``tell``.
        message: As for ``tell``; its kind, and what it is ``about`` where it says so, are the event.
        environment: As for ``tell``.
        wait_s: How long to wait for what another side is telling right now, to step in where that fails.

    Returns:
        As of ``tell``; channels that others have told by are left out. Never raises.
    """
    known = dict(os.environ if environment is None else environment)
    event = "-".join(filter(None, (str(message.get("kind")), message.get("about"))))
    channels = [name for name in wanted(settings, message) if name != "desktop" or has_desktop(known)]
    try:
        mine = [name for name in channels if _take(mark(attempt, event, name), wait_s)]
        others = {name: None for name in CHANNELS if name not in mine}
    except OSError as error:  # the directory is full, gone or not ours: then nobody knows who has told
        return [{"channel": name, "ok": False, "detail": "no mark can be left: %s" % error} for name in channels]
    results = tell({**settings, **others}, message, known)
    for result in results:
        with contextlib.suppress(OSError):  # who was told was told, on a full disk too
            _settle(attempt, event, result)
    return results


def _take(path: str, wait_s: float) -> bool:
    """Whether the mark is ours now."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            # of two sides at once only one gets it, on NFS too from version 3 on (open(2))
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return True
        except FileExistsError:
            if _is_told(path) or time.monotonic() >= deadline:
                return False
        time.sleep(POLL_S)


def _is_told(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:  # given back a moment ago
        return False


def _settle(attempt: str, event: str, result: Dict[str, Any]) -> None:
    path, channel = mark(attempt, event, result["channel"]), result["channel"]
    if result["ok"] or result.get("unknown"):
        with open(path, "wb") as stream:
            stream.write(TOLD)
    else:
        os.unlink(path)
    words = "told by" if result["ok"] else "perhaps not told by" if result.get("unknown") else "not told by"
    text = "%s: %s %s: %s" % (event, words, channel, result["detail"])
    rundir.log_event(attempt, "notify", text, channel=channel, ok=result["ok"])


def tell_of(
    attempt: str, kind: str, environment: Optional[Mapping[str, str]] = None, words: str = "", about: str = ""
) -> List[Dict[str, Any]]:
    """Tell of an event of the attempt, as its ``job.json`` wants it and its files say. Never raises.

    Args:
        attempt: The attempt's directory.
        kind: One of ``rundir.TOLD_EVENTS``.
        environment: As for ``tell``; None: this process's, with the user's own file.
        words: What to say before what the files say, such as what was decided.
        about: What in particular: of each such thing people are told once.
    """
    settings = (rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}).get("notify")
    if not isinstance(settings, dict):
        return []
    known = with_env_file(os.environ) if environment is None else dict(environment)
    if kind == "ended":  # what ends the attempt's processes by their mark is not to end the message of that
        known.pop(rundir.ATTEMPT_VARIABLE, None)
    message = attempt_message(attempt, kind)
    message["about"] = about
    message["text"] = "\n".join(filter(None, (words, message["text"])))
    return tell_once(attempt, settings, message, known)


def attempt_message(attempt: str, kind: str) -> Dict[str, Any]:
    """What there is to say of the attempt by its files."""
    about = rundir.read_json(os.path.join(rundir.run_of(attempt), rundir.RUN)) or {}
    job = rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}
    run, cluster = str(job.get("run_id", "")), str(about.get("cluster", ""))
    end = rundir.read_json(os.path.join(attempt, rundir.END)) if kind == "ended" else None
    stage = rundir.read_json(os.path.join(attempt, rundir.STAGE)) or {}
    of_steps = " of %s" % stage["steps"] if stage.get("steps") is not None else ""
    step = "step %s%s" % (stage["step"], of_steps) if stage.get("step") is not None else ""
    place = "attempt %s on %s" % (job.get("attempt"), cluster)
    lines = [str(end.get("reason", ""))] if end else []
    lines.append(", ".join(filter(None, (place, step))))
    word = str(end.get("outcome", kind)) if end else kind
    title, text = "%s: %s" % (run, word), "\n".join(lines)
    return {"kind": kind, "cluster": cluster, "run": run, "title": title, "text": text, "time_s": time.time()}


def with_env_file(environment: Mapping[str, str]) -> Dict[str, str]:
    """``environment`` with the variables of the user's own file, as far as that can be read."""
    found = dict(environment)
    if found.get(ENV_FILE_VARIABLE):
        with contextlib.suppress(EnvironmentFileError):  # whoever misses a variable says which
            found.update(read_private_file(found[ENV_FILE_VARIABLE]))
    return found


def main() -> int:
    """Entry point: ``python -m rltui.onnode.tell_once [--attempt DIR]``.

    ``{"settings", "message"}`` is on its standard input; it prints what came of each channel. Without an attempt there
    is no mark: a test.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", default="", help="directory of the attempt")
    options = parser.parse_args()
    os.umask(0o077)
    given = json.load(sys.stdin)
    settings, message = given["settings"], given["message"]
    known = with_env_file(os.environ)
    results = (
        tell_once(options.attempt, settings, message, known, WAIT_S)
        if options.attempt
        else tell(settings, message, known)
    )
    if not options.attempt:
        results += _file_problem()
    print(json.dumps(results))
    return 0


def _file_problem() -> List[Dict[str, Any]]:
    try:
        if os.environ.get(ENV_FILE_VARIABLE):
            read_private_file(os.environ[ENV_FILE_VARIABLE])
    except EnvironmentFileError as error:
        return [{"channel": "env_file", "ok": False, "detail": str(error)}]
    return []


if __name__ == "__main__":
    sys.exit(main())
