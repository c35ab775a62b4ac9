"""Slurm as seen from here: its words and formats as pure functions, and a client that asks through the relay."""
