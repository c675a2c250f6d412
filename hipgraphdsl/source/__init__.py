"""HIP C++ source, read without compiling it.

``tokens`` splits text into tokens, ``types`` holds the C++ types, ``expressions`` parses expressions into syntax ``trees``,
``constants`` evaluates integer constants, ``macros`` and ``preprocessor`` process directives, ``unit`` inserts headers and leaves
bodies unparsed, ``scope`` resolves names, and ``declarations`` collects the declarations of a translation unit: `Declarations` is
the class that `kernels.Module` uses.
Unsupported source raises ValueError with the reason; the caller adds which parameter or variable it concerns.
"""

from .declarations import UNNAMED, Declarations, KernelDeclaration, SymbolDeclaration
from .macros import PLATFORM_MACROS, Budget, Macro, expand_macros
from .names import KernelName, spelled_parameters
from .scope import Constant, Scope, TemplateParameter
from .tokens import OPENING, Token, closing_angle, closing_index, spell, split_commas, tokenize
from .types import IGNORED_WORDS, CType, Value, natural_alignment
from .unit import Headers, names_in

__all__ = [
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
    "closing_angle",
    "closing_index",
    "expand_macros",
    "names_in",
    "natural_alignment",
    "spell",
    "spelled_parameters",
    "split_commas",
    "tokenize",
]
