"""rltui: a terminal run manager for RL post-training on Slurm and Ray."""

__version__ = "0.2.0"
