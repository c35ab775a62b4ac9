"""Rules over a layout: what cannot work is said before anything is queued."""
