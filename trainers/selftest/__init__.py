"""A job that tries, part by part, whether these nodes carry a layout, and measures what ``rltui plan`` assumes."""
