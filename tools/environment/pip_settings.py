"""The user's pip configuration, said in uv's words: uv reads none of pip's files and variables."""

from __future__ import annotations

import ast
from collections.abc import Mapping

# pip option -> (uv variable, separator of lists in it)
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", ""),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "proxy": ("ALL_PROXY", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
}
SECTIONS = ("global", "install", ":env:")  # pip's own order: what comes later wins
OLDER_NAMES = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}


def effective(listing: str) -> dict[str, str]:
    """Return pip's options from the output of ``pip config list``, lines such as ``global.find-links='/wheels'``."""
    options: dict[tuple[str, str], str] = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in SECTIONS and value[:1] in ("'", '"'):
            options[section, name] = str(ast.literal_eval(value))
    return {name: options[section, name] for section in SECTIONS for found, name in options if found == section}


def uv_environment(listing: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to ``environ`` so that uv looks where pip would; what the user set for uv stays.

    pip takes the best version from all its indexes, whereas uv stops at the first index that knows a name; with
    extra indexes uv is told to do as pip does.
    """
    options = effective(listing)
    added = {"UV_PYTHON_DOWNLOADS": "never"}
    if "extra-index-url" in options:
        added["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    for name, value in options.items():
        variable, separator = VARIABLES.get(name, ("", ""))
        if variable and value.split():
            added[variable] = separator.join(value.split()) if separator else value.strip()
    return {
        variable: value
        for variable, value in added.items()
        if variable not in environ and OLDER_NAMES.get(variable, "") not in environ
    }
