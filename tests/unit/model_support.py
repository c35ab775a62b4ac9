"""Shapes of models that the table knows, for tests of what is computed from them."""

from __future__ import annotations

from rltui.hardware.architecture import Architecture
from rltui.hardware.models import known_model


def shape_of(name: str) -> Architecture:
    found = known_model(name)
    assert found is not None
    return found
