"""The real Slurm cluster of these tests: started with the first test that asks for it, made as new after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab, why_not


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[Lab]:
    """A running lab of three nodes with four pretended H100 each; see docs/testing.md."""
    if reason := why_not():
        pytest.skip(reason)
    lab = Lab().start()
    yield lab
    lab.stop()


@pytest.fixture
def slurm_cluster(slurm_lab: Lab) -> Iterator[Lab]:
    """The lab, made as new after the test."""
    yield slurm_lab
    slurm_lab.reset()


@pytest.fixture(scope="module")
def four_nodes() -> Iterator[Lab]:
    """A lab with one node more than a run on three of them needs."""
    if reason := why_not():
        pytest.skip(reason)
    lab = Lab(compute_nodes=4).start()
    yield lab
    lab.stop()
