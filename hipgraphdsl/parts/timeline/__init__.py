"""When nodes ran, or would run."""

from .. import lazily

__getattr__ = lazily(__name__, {"profile": "profiling", "simulated": "doors"})
