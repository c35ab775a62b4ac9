"""What users can do, one verb family a file; the shell and the cockpit call the same functions."""
