"""``python -m rltui``."""

from rltui.cli.main import run

run()
