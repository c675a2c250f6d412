"""HIP C++ source, read without compiling it.

``tokens`` splits text, ``types`` knows C++ types, ``expressions`` reads expressions as syntax ``trees`` and evaluates integer
constants, ``macros`` and ``preprocessor`` follow preprocessor lines, ``unit`` puts headers in and leaves bodies unread, ``scope``
knows what names mean, and ``declarations`` has what a translation unit declares: `Declarations` is what `kernels.Module` asks.
``bodies`` reads those of kernels.
What is not understood raises ValueError with the reason; the caller knows whose parameter or variable it is.
"""

from .declarations import UNNAMED, Declarations, KernelDeclaration, SymbolDeclaration
from .expressions import COMPARED, COMPUTED, Value, evaluate_condition
from .macros import PLATFORM_MACROS, Budget, Macro, expand_macros
from .scope import Constant, Scope, TemplateParameter
from .tokens import OPENING, Token, closing_angle, closing_index, spell, split_commas, tokenize
from .types import IGNORED_WORDS, CType, bfloat16_dtype, is_bfloat16, natural_alignment
from .unit import Headers, names_in

__all__ = [
    "COMPARED",
    "COMPUTED",
    "IGNORED_WORDS",
    "OPENING",
    "PLATFORM_MACROS",
    "UNNAMED",
    "Budget",
    "CType",
    "Constant",
    "Declarations",
    "Headers",
    "KernelDeclaration",
    "Macro",
    "Scope",
    "SymbolDeclaration",
    "TemplateParameter",
    "Token",
    "Value",
    "bfloat16_dtype",
    "closing_angle",
    "closing_index",
    "evaluate_condition",
    "expand_macros",
    "is_bfloat16",
    "names_in",
    "natural_alignment",
    "spell",
    "split_commas",
    "tokenize",
]
