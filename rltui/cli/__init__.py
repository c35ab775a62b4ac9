"""The shell's side: argument parsing, one thin file a verb.

Data goes to stdout, talk to stderr; exit codes live here.
"""
