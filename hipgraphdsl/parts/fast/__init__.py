"""Graphs that are built and launched by compiled code: one optional extension module, built on first use (`native`)."""

from .. import lazily

__getattr__ = lazily(
    __name__,
    {
        "CompiledAdder": "adding",
        "CompiledCalls": "compiled_calls",
        "CompiledPath": "call_path",
        "SlowPath": "call_path",
        "native": "extension",
    },
)
