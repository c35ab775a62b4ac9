"""Screens: each holds one snapshot, hands it to the views, and turns keys into requests to the controller."""
