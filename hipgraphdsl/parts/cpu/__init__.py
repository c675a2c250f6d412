"""The CPU as a device of HIP: a runtime, the compiler of its kernels, and their sanitizer."""

from .. import lazily

__getattr__ = lazily(__name__, {"CpuRuntime": "runtime", "runtime_library": "runtime"})
