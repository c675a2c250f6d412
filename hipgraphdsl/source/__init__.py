"""HIP C++ source, read without compiling it.

``tokens`` splits text into tokens, ``types`` holds the C++ types, ``expressions`` parses expressions into syntax ``trees`` and
evaluates integer constants, ``macros`` and ``preprocessor`` process directives, ``unit`` inserts headers and leaves bodies
unparsed, ``scope`` resolves names, and ``declarations`` collects the declarations of a translation unit: `Declarations` is the
class that `kernels.Module` uses. ``bodies`` parses kernel bodies.
Unsupported source raises ValueError with the reason; the caller adds which parameter or variable it concerns.
"""

from .declarations import UNNAMED, Declarations, KernelDeclaration, SymbolDeclaration
from .expressions import COMPARED, COMPUTED, Value, evaluate_condition
from .macros import PLATFORM_MACROS, Budget, Macro, expand_macros
from .names import KernelName, spelled_parameters
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
    "KernelName",
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
    "spelled_parameters",
    "split_commas",
    "tokenize",
]
