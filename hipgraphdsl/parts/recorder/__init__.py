"""The runtime that records its calls and runs none."""

from .. import lazily

__getattr__ = lazily(__name__, {"Call": "recorder", "RecorderRuntime": "recorder"})
