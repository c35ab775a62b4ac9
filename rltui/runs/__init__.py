"""Runs: their directories, attempts, journal, and submission exactly once."""
