"""The reward that a server computes: ``POST`` of ``{prompts, responses, answers}``, answered by ``{rewards}``."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.rewards.answers import Answer

TRIES = 4
FIRST_PAUSE_S = 0.5
MOST_BYTES = 64 * 2**20


class RemoteRewardError(RuntimeError):
    """The server did not give usable rewards."""


class Remote:
    """Asks a server for the rewards of many answers at once; several threads may.

    Training ends where the server stays silent: a reward of 0 in its place would teach the model nonsense.

    Args:
        url: Where to post.
        timeout_s: Longest wait for an answer.
        token_variable: Environment variable with a bearer token; unset: none is sent.
        event: Called with a kind and a text when a try fails.
        pause: Waits some seconds between tries.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        token_variable: str,
        event: Callable[[str, str], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"data.reward_url must begin with http:// or https://, and is {url!r}")
        self._url, self._timeout_s, self._event, self._pause = url, timeout_s, event, pause
        self._token = os.environ.get(token_variable, "")

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The rewards that the server gives.

        Raises:
            RemoteRewardError: After several tries there are none, or not as many numbers as answers.
        """
        body = {
            "prompts": [answer.prompt.text for answer in answers],
            "responses": [answer.text for answer in answers],
            "answers": [answer.prompt.answer for answer in answers],
        }
        for number in range(1, TRIES + 1):
            try:
                return _rewards(self._post(json.dumps(body).encode()), len(answers))
            except _FAILURES as error:
                reason = f"the reward server {self._url} failed (try {number} of {TRIES}): {error}"
                self._event("error", reason)
                if number == TRIES or _is_refusal(error):
                    raise RemoteRewardError(reason) from error
            self._pause(FIRST_PAUSE_S * 2 ** (number - 1))
        raise AssertionError("the last try returns or raises")

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        with _opener.open(request, timeout=self._timeout_s) as answer:
            found: bytes = answer.read(MOST_BYTES)
        return found

    def close(self) -> None:
        """There is nothing to end."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the token is for the server that the layout names, for no other."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)
_FAILURES = (OSError, http.client.HTTPException, ValueError)


def _is_refusal(error: Exception) -> bool:
    """Whether the server understood and said no, so that asking again is useless; 429 asks for patience."""
    return isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500 and error.code not in (408, 429)


def _rewards(text: bytes, count: int) -> list[float]:
    found: Any = json.loads(text)
    rewards = found.get("rewards") if isinstance(found, dict) else found
    if not isinstance(rewards, list) or len(rewards) != count:
        raise ValueError(f"it answered without a list of {count} rewards")
    if not all(isinstance(reward, (int, float)) and not isinstance(reward, bool) for reward in rewards):
        raise ValueError("some of its rewards are no numbers")
    # JSON's whole numbers have no limit: abs compares them with what a float can hold
    if not all(abs(reward) <= sys.float_info.max for reward in rewards):
        raise ValueError("some of its rewards are no finite numbers")
    return [float(reward) for reward in rewards]
