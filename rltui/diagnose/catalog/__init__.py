"""The causes and their signs, one family a file; ``index`` puts them together."""
