"""``rltui schema``: print the JSON Schema of layouts, for editors."""

from __future__ import annotations

import argparse

from rltui.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb takes no arguments."""


def run(options: argparse.Namespace) -> int:  # noqa: ARG001 (every verb has this signature)
    """Print the JSON Schema."""
    from rltui.layout.json_schema import json_schema

    print_json(json_schema())
    return 0
