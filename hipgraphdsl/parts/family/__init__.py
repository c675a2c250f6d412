"""Families: one graph for each of several sizes, compiled when they are needed, in the same memory."""

from .. import lazily

__getattr__ = lazily(__name__, {"Family": "families"})
