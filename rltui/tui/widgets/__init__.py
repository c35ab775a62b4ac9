"""Widgets that paint lines (Textual's Line API): they know lines and keys, never services."""
