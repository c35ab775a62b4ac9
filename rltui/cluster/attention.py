"""Ways to fail at a cluster's door that only a person can settle: asking again by itself would make them worse."""

from __future__ import annotations

from rltui.errors import ClusterError


class NeedsAttentionError(ClusterError):
    """Somebody has to act first: answer a prompt, confirm a host key, renew a certificate.

    A ``RelayClient`` that meets one asks that cluster nothing more until it is closed, which is how the user's acting
    is told to it: background refreshes would otherwise raise prompts, or count as attacks and lock the account.
    """


class AuthFailedError(NeedsAttentionError):
    """The server refused the user."""


class HostKeyError(NeedsAttentionError):
    """The server's key is not the one that is known for this host."""
