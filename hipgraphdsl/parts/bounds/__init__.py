"""What kernels do beyond what their arguments say, by static analysis of their source.

Accesses beyond arrays (HG409), memory behind hidden addresses (HG606), exchange without a barrier (HG207).
"""

from .. import lazily

__getattr__ = lazily(__name__, {"check_hidden": "hidden", "checker": "doors"})
