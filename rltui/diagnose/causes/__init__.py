"""The causes, one family a file: how logs word each, how it is weighed, what to do, and where that is known from."""
