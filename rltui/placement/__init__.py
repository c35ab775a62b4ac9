"""Who sits where: the placement groups of a layout, simulated node by node."""
