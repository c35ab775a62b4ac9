"""Telling people of a run: by webhook, mail, a command of theirs, or the desktop.

Settings and message are plain JSON, so that whoever sees something can tell it: the attempt's own process on a node, a
process on the login node, or the cockpit. Secrets are known by the name of a variable only; their values come from the
environment, go to whom they are for, and are masked wherever something is said of them.

This module is used on nodes, so it keeps to the standard library and Python 3.8. Every process of an attempt has it,
and most tell nobody anything: what HTTP and mail take is imported when somebody is told.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from rltui.onnode.rundir import TOLD_BY_DEFAULT, TOLD_EVENTS

if TYPE_CHECKING:
    import http.client

DEADLINE_S = 10.0
"""For each channel; they are told at the same time."""

SOCKET_S = 8.0
"""Less than the deadline, so that a server that does not answer is called by its name."""

MAX_TITLE, MAX_TEXT, MAX_DETAIL = 200, 3000, 200

SENDMAIL_FOLDERS = ("/usr/sbin", "/usr/lib", "/usr/local/sbin")
DESKTOP_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY")
MASK = "***"

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|WEBHOOK|KEY(?:_|$)")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
# control characters, invisible and reordering marks, lone surrogates: newlines are looked after apart
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


class Message(NamedTuple):
    """What is told, harmless to terminals, headers, shells and markup-free readers."""

    kind: str
    cluster: str
    run: str
    title: str
    text: str

    @property
    def whole(self) -> str:
        """Title and text together, for ways of telling that have no title of their own."""
        return "%s\n%s" % (self.title, self.text) if self.text else self.title


class Said(NamedTuple):
    """What became of one channel."""

    ok: bool
    detail: str
    is_unknown: bool = False
    """Whether it may have arrived although it is not ok."""


class _Turn:
    """Whether a channel has begun to send, settled between it and who waits for it no longer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = self._is_over = False

    def begin(self) -> bool:
        """The message may leave from now on; False: it is too late for that."""
        with self._lock:
            self._began = not self._is_over
            return self._began

    def end(self) -> bool:
        """Nothing may leave any more that has not begun to; returns whether it had."""
        with self._lock:
            self._is_over = True
            return self._began


Channel = Callable[[Any, Message, Mapping[str, str], _Turn], Said]


def tell(
    settings: Dict[str, Any], message: Dict[str, Any], environment: Optional[Mapping[str, str]] = None
) -> List[Dict[str, Any]]:
    """Tell ``message`` by every channel of ``settings``, unless nobody wants to hear of its kind.

    Args:
        settings: The profile's ``notify``: ``events``, and for each channel what it needs.
        message: ``{"kind", "cluster", "run", "title", "text", "time_s"}``.
        environment: Variables with the secrets that ``settings`` names; None: this process's.

    Returns:
        One ``{"channel", "ok", "detail"}`` each; ``"unknown": True`` where it may have arrived all the same. Nothing is
        ever raised.
    """
    chosen = wanted(settings, message)
    known = dict(os.environ if environment is None else environment)
    said: Dict[str, Said] = {}
    turns = {name: _Turn() for name in chosen}
    threads = [
        threading.Thread(target=_tell, args=(said, name, settings, message, known, turns[name]), daemon=True)
        for name in chosen
    ]
    for thread in threads:
        thread.start()
    end_at = time.monotonic() + DEADLINE_S + 1.0
    for thread in threads:
        thread.join(max(0.0, end_at - time.monotonic()))
    mask = masker(settings, known)
    return [_result(name, said.get(name) or _late(turns[name]), mask) for name in chosen]


def _late(turn: _Turn) -> Said:
    return Said(False, "no answer within %.0f s" % DEADLINE_S, turn.end())


def wanted(settings: Dict[str, Any], message: Dict[str, Any]) -> List[str]:
    """The channels that ``message`` is told by."""
    kind, events = message.get("kind"), settings.get("events") or TOLD_BY_DEFAULT
    return [name for name in CHANNELS if settings.get(name)] if kind in TOLD_EVENTS and kind in events else []


def cleaned(text: Any, limit: int = MAX_TITLE) -> str:
    """``text`` in one line, without escape sequences and invisible characters."""
    return " ".join(_harmless(str(text)).split())[:limit]


def _harmless(text: str) -> str:
    return _UNSAFE.sub("", _ESCAPES.sub("", text.replace("\t", " ")))


def as_message(message: Dict[str, Any]) -> Message:
    """``message`` made harmless; only its text may have several lines."""
    kind, cluster, run = (cleaned(message.get(name) or "") for name in ("kind", "cluster", "run"))
    title = cleaned(message.get("title") or "") or "%s: %s" % (run or "rltui", kind)
    text = _harmless(str(message.get("text") or "")).strip()[:MAX_TEXT]
    return Message(kind, cluster, run, title, text)


def masker(settings: Dict[str, Any], environment: Mapping[str, str]) -> Callable[[str], str]:
    """A function that hides every secret of ``environment`` in a text, and the parts of the webhook's address."""
    secrets = {value for name, value in environment.items() if _SECRET_NAME.search(name.upper())}
    secrets.update(re.split(r"[/?&=#]+", environment.get(str(settings.get("webhook") or ""), "")))
    secrets.add(environment.get(str(settings.get("webhook") or ""), ""))
    longest_first = sorted((one for one in secrets if len(one) >= 8), key=len, reverse=True)

    def mask(text: str) -> str:
        for one in longest_first:
            text = text.replace(one, MASK)
        return text

    return mask


def _result(name: str, said: Said, mask: Callable[[str], str]) -> Dict[str, Any]:
    result: Dict[str, Any] = {"channel": name, "ok": said.ok, "detail": cleaned(mask(said.detail), MAX_DETAIL)}
    if said.is_unknown:
        result["unknown"] = True
    return result


def _tell(
    said: Dict[str, Said],
    name: str,
    settings: Dict[str, Any],
    message: Dict[str, Any],
    environment: Dict[str, str],
    turn: _Turn,
) -> None:
    try:
        said[name] = CHANNELS[name](settings[name], as_message(message), environment, turn)
    except Exception as error:  # noqa: BLE001 (an edge: no channel may take down a run, nor another channel)
        said[name] = Said(False, "%s: %s" % (type(error).__name__, error))


def _webhook(variable: str, message: Message, environment: Mapping[str, str], turn: _Turn) -> Said:
    """Slack's form, which Mattermost, Rocket.Chat and Discord (with ``/slack`` behind its address) read too.

    No redirect is followed: the address is a secret for one server.
    """
    import http.client

    url = environment.get(variable, "").strip()
    if not url:
        return Said(False, "the variable %s is not set; a line of env_file sets it" % variable)
    if not re.fullmatch(r"https?://[!-~]+", url, re.IGNORECASE):
        return Said(False, "what %s holds is no address that begins with https://" % variable)
    body = json.dumps({"text": _escaped(message.whole)}).encode()
    connection, target, headers = _connection(url, environment)
    try:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            return Said(False, "not reached: %s" % error)
        if not turn.begin():
            return Said(False, "not reached in time")
        connection.request("POST", target, body, {"Content-Type": "application/json", "User-Agent": "rltui", **headers})
        answer = connection.getresponse()
        words = answer.read(MAX_DETAIL).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return Said(False, "no answer: %s" % error, True)
    finally:
        connection.close()
    if 200 <= answer.status < 300:
        return Said(True, "HTTP %d" % answer.status)
    return Said(False, "HTTP %d: %s" % (answer.status, words or answer.reason))


def _connection(url: str, environment: Mapping[str, str]) -> "Tuple[http.client.HTTPConnection, str, Dict[str, str]]":
    """A connection to the server of ``url`` or its proxy, what to ask of it, and further headers.

    The proxy is that of ``environment``, which may be a file's and not this process's.
    """
    import http.client
    import urllib.parse
    import urllib.request

    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    host, target = parts.hostname or "", (parts.path or "/") + ("?" + parts.query if parts.query else "")
    name = parts.scheme + "_proxy"
    proxy = environment.get(name) or environment.get(name.upper())
    exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if not proxy or urllib.request.proxy_bypass_environment(parts.netloc, {"no": exempt}):  # type: ignore[attr-defined]
        return kind(host, parts.port, timeout=SOCKET_S), target, {}
    by = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
    connection = kind(by.hostname or "", by.port or 80, timeout=SOCKET_S)
    user = "%s:%s" % (urllib.parse.unquote(by.username or ""), urllib.parse.unquote(by.password or ""))
    headers = {"Proxy-Authorization": "Basic " + base64.b64encode(user.encode()).decode()} if by.username else {}
    # of plain HTTP a proxy is asked for the whole URL; https goes through a tunnel, so that it cannot read along
    if parts.scheme == "http":
        return connection, url, headers
    connection.set_tunnel(host, parts.port or 443, headers)
    return connection, target, {}


def _escaped(text: str) -> str:
    """``text`` without Slack's mentions and links, and without markup for a desktop."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mail(addresses: List[str], message: Message, environment: Mapping[str, str], turn: _Turn) -> Said:
    path = os.pathsep.join([environment.get("PATH", os.defpath), *SENDMAIL_FOLDERS])
    program = shutil.which("sendmail", path=path)
    if program is None:
        return Said(False, "there is no sendmail here")
    from email.message import EmailMessage

    mail = EmailMessage()
    mail["To"] = ", ".join(addresses)
    mail["Subject"] = message.title
    # keeps away answers that say somebody is out of office (RFC 3834)
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.whole + "\n")
    # without -i a line with nothing but a dot would end the message
    return _run([program, "-i", *addresses], mail.as_bytes(), environment, turn)


def _command(argv: List[str], message: Message, environment: Mapping[str, str], turn: _Turn) -> Said:
    """The message is on its standard input and in RLTUI_NOTIFY_… variables; nothing of it is in the arguments."""
    told = {"RLTUI_NOTIFY_" + name.upper(): value for name, value in message._asdict().items()}
    own = {name: value for name, value in environment.items() if name != "PYTHONPATH"}  # rltui's own modules
    words = [os.path.expanduser(word) for word in argv]
    return _run(words, (message.whole + "\n").encode(), {**own, **told}, turn)


def _desktop(_: Any, message: Message, environment: Mapping[str, str], turn: _Turn) -> Said:
    program = shutil.which("notify-send", path=environment.get("PATH", os.defpath))
    if program is None or not has_desktop(environment):
        return Said(False, "there is no desktop here")
    argv = [program, "--app-name=rltui", "--", message.title, _escaped(message.text)]
    return _run(argv, b"", environment, turn)


def has_desktop(environment: Mapping[str, str]) -> bool:
    """Whether this process belongs to somebody's desktop."""
    return any(environment.get(name) for name in DESKTOP_VARIABLES)


def _run(argv: List[str], stdin: bytes, environment: Mapping[str, str], turn: _Turn) -> Said:
    """Run a program to its end; files and not pipes, so that what it leaves behind cannot hold this up."""
    program = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
    if program is None:
        return Said(False, "%s is not there or cannot be run" % argv[0])
    if not turn.begin():
        return Said(False, "%s was not found in time" % argv[0])
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        code = _run_for(DEADLINE_S, [program, *argv[1:]], (given, errors), environment)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
        words = errors.read().decode("utf-8", "replace").strip().splitlines()
    if code is None:
        return Said(False, "%s did not end within %.0f s" % (argv[0], DEADLINE_S), True)
    if code:
        return Said(False, "%s ended with code %d: %s" % (argv[0], code, words[-1] if words else "no words"))
    return Said(True, "%s took it" % argv[0])


def _run_for(
    seconds: float, argv: List[str], files: Tuple[BinaryIO, BinaryIO], environment: Mapping[str, str]
) -> Optional[int]:
    """Its exit code; None where it had to be killed, with all that it started in its process group."""
    home = os.path.expanduser("~")
    process = subprocess.Popen(
        argv,
        stdin=files[0],
        stdout=subprocess.DEVNULL,
        stderr=files[1],
        env=dict(environment),
        cwd=home if os.path.isdir(home) else "/",  # a compute node may not have it
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # also after a good end: what it left in its group would go on
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


CHANNELS: Dict[str, Channel] = {"webhook": _webhook, "mail": _mail, "command": _command, "desktop": _desktop}
