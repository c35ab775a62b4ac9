"""Pure functions from snapshots to lines of text: everything a screen shows, without a terminal in sight."""
