"""Overrides as they are typed: their form, and how a newer one takes the place of an older. Pure functions."""

from __future__ import annotations


def with_override(overrides: tuple[str, ...], new: str) -> tuple[str, ...]:
    """``overrides`` with ``new`` at the end; an older one of the same key goes."""
    key = new.partition("=")[0].strip()
    return (*(old for old in overrides if old.partition("=")[0].strip() != key), new)


def override_problem(text: str) -> str:
    """What is wrong with the form of an override, or an empty string; values are judged by the check."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return "an override is key.path=value, such as train.steps=100"
    return "" if value.strip() else f"{key.strip()} has no value"
