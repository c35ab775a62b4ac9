"""How training systems word what they do: one file of data a system, and the reader of these files."""
