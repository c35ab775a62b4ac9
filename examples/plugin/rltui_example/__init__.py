"""A verb and a tab for rltui, to start a plug-in from."""
