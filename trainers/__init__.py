"""The trainers that rltui launches: each algorithm's loop, its pure tensor functions, and its Ray roles.

A house of its own: it shares the layout schema, the placement rules and the run directory's names with rltui,
and is imported by nothing in it.
"""
