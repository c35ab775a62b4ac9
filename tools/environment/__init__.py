"""The project's .venv: what belongs into it, how it gets there, and whether it is there already."""
