"""``rltui info``: where rltui keeps its things and what is installed."""

from __future__ import annotations

import argparse
import importlib.util
import platform
from importlib import metadata

import rltui
from rltui.cli.output import add_json, print_json, print_lines
from rltui.cluster.profiles import load_profiles
from rltui.errors import RltuiError
from rltui.layout.presets import preset_root
from rltui.onnode.preflight import capacity
from rltui.paths import cache_dir, config_dir, run_root, state_dir
from rltui.plugins import PANELS, VERBS, Plugin, plugins

PACKAGES = {"torch": "torch", "ray": "ray", "deepspeed": "deepspeed", "transformers": "transformers", "wandb": "wandb"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print where things are and what is installed."""
    machine = capacity()
    profiles = load_profiles()
    facts: dict[str, str] = {
        "rltui": rltui.__version__,
        "python": platform.python_version(),
        "presets": str(preset_root()),
        "runs": str(run_root()),
        "state": str(state_dir()),
        "settings": str(config_dir()),
        "cache": str(cache_dir()),
        "clusters": ", ".join(profiles.by_name),
        "cpu slots": str(machine.cpus),
        "gpus": str(machine.gpus),
        **{name: _version(package) for name, package in PACKAGES.items()},
        "vllm": "installed" if importlib.util.find_spec("vllm") else "not installed",
    }
    brought = [(one, _problem(one)) for group in (VERBS, PANELS) for one in plugins(group)]
    files = [(file.path, "used" if file.used else file.note, file.kind) for file in profiles.files]
    if options.json:
        listed = [{"path": path, "state": state, "kind": kind} for path, state, kind in files]
        told = [{"name": one.name, "group": one.group, "package": one.package, "problem": why} for one, why in brought]
        print_json({"schema": 1, **facts, "cluster_files": listed, "plugins": told})
    else:
        print_lines(f"{name:<14}{value}" for name, value in facts.items())
        print_lines(f"{kind + ' clusters':<18}{path}: {state}" for path, state, kind in reversed(files))
        print_lines(["                  (the first of these that has a key of a cluster wins)"])
        print_lines(f"{'plug-in':<14}{one.group} {one.title}{why and f': {why}'}" for one, why in brought)
    return 0


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _problem(plugin: Plugin) -> str:
    try:
        plugin.load()
    except RltuiError as error:
        return error.message
    return ""
