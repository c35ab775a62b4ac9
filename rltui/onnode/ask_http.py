"""Asking an HTTP server on this node's loopback for JSON.

What that takes is imported when somebody asks: it is a third of what a node's processes would import at their start.
"""

import json
from typing import Any, NamedTuple, Optional


class Reply(NamedTuple):
    """What a server said.

    Attributes:
        value: The JSON; None where it was none, or there was no answer.
        status: The HTTP status; 0 where there was no answer.
        problem: Why there is no value, with no token in it; empty where there is one.
    """

    value: Any
    status: int
    problem: str


def ask(url: str, token: str, timeout_s: float, most_bytes: Optional[int] = None) -> Reply:
    """Ask for ``url``; whatever goes wrong is the reply's ``problem``, an answer over ``most_bytes`` too."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token} if token else {})
    # a proxy that the user's environment names has no business with loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    place = url.split("/api/")[0]
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return Reply(json.loads(answer.read(most_bytes)), answer.status, "")
    except urllib.error.HTTPError as error:
        error.close()
        return Reply(None, error.code, "%s answered %d." % (place, error.code))
    except (OSError, ValueError, http.client.HTTPException) as error:  # the last: a server that is ended as it answers
        return Reply(None, 0, "%s does not answer (%s)." % (place, getattr(error, "reason", error)))
