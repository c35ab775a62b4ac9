"""Layouts: the schema, loading with line numbers, overrides and presets."""
