"""A real Slurm cluster of several hosts on this machine, for tests: see docs/testing.md."""

from .lab import Lab
from .spec import LabError, Spec, Ssh, why_not

__all__ = ["Lab", "LabError", "Spec", "Ssh", "why_not"]
