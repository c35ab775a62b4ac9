"""Proposals: from a model and GPUs to the few layouts that fit and would be fastest, with the reasons."""
