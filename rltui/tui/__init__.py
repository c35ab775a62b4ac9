"""The cockpit: a Textual program over the services. Start it with :func:`rltui.tui.app.run_cockpit`."""
