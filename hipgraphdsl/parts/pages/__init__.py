"""Interactive pages of workflows and timelines."""

from .. import lazily

__getattr__ = lazily(__name__, {"filled": "html"})
