"""Symptoms and verdicts: text and snapshots in, diagnoses out. Nothing here touches a disk, a network or a screen."""
