"""Format the findings of the CPU runtime's sanitizer: code locations become lines of the user's source."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

#: A code location as the runtime writes it, between two marks: a library's path, the offset in it, and the line or 0.
_PLACE: Final = re.compile("\x01(.*?)\\+0x([0-9a-f]+):(\\d+)\x02")
#: This runtime's own headers, whose functions count as part of the user's statement that calls them.
_OWN: Final = frozenset({"device.h", "fibers.h", "instrumented.h", "lanes.h", "launch.h"})


def told(text: str) -> str:
    """Return the runtime's text for a fault, with ``file:line`` for each code location and the user's names of variables."""
    text = _PLACE.sub(lambda found: _place(found[1], int(found[2], 16), int(found[3])), text)
    return re.sub(r"'(_Z\w+)[.\d]*'", lambda found: f"'{_plain(found[1])}'", text)


def _plain(mangled: str) -> str:
    """Return the variable's name, which is the last component of its mangled name and is preceded by its length."""
    for length in re.finditer(r"\d+", mangled):
        end = length.end() + int(length[0])
        name = mangled[length.end() : end]
        if len(name) == int(length[0]) and name.isidentifier() and re.fullmatch(r"E?(_\d+_?)?", mangled[end:]):
            return name
    return mangled


def _place(path: str, offset: int, line: int) -> str:
    """Return ``file:line`` of the user's statement at an offset of a library, or path and offset if no line is known."""
    try:
        found = next((frame for frame in _frames(_dwarf(path), offset) if frame[0] not in _OWN), None)
    except (OSError, ELFError):
        found = None
    return f"{path}+{offset:#x}" if found is None else f"{found[0]}:{line or found[1]}"


@functools.lru_cache(maxsize=4)  # several faults of one library follow each other
def _dwarf(path: str) -> Any:
    """Return the debug information of a library, whose path identifies its contents; a linked library needs no relocation."""
    with open(path, "rb") as file:
        return ELFFile(file).get_dwarf_info(relocate_dwarf_sections=False)


def _frames(dwarf: Any, offset: int) -> Iterator[tuple[str, int]]:
    """Yield file and line of an instruction, and of the calls through which it was inlined, innermost first."""
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        row = None if program is None else _row(program, offset)
        if row is None:
            continue
        files = [entry.name.decode(errors="replace") for entry in program["file_entry"]]  # counted from 1 up to DWARF 4
        yield files[row.file - 1], row.line
        for call in reversed(list(_inlined(dwarf, unit.get_top_DIE(), offset, _low(unit.get_top_DIE())))):
            if "DW_AT_call_line" in call.attributes:
                yield files[call.attributes["DW_AT_call_file"].value - 1], call.attributes["DW_AT_call_line"].value


def _row(program: Any, offset: int) -> Any:
    """Return the row of a line table that covers an instruction; None if the instruction belongs to another unit."""
    before = None
    for state in (entry.state for entry in program.get_entries()):
        if state is None:
            continue
        if before is not None and before.address <= offset < state.address:
            return before
        before = None if state.end_sequence else state
    return None


def _inlined(dwarf: Any, parent: Any, offset: int, base: int) -> Iterator[Any]:
    """Yield the functions that were inlined around an instruction, outermost first."""
    for entry in parent.iter_children():
        if _covers(dwarf, entry, offset, base):
            if entry.tag == "DW_TAG_inlined_subroutine":
                yield entry
            yield from _inlined(dwarf, entry, offset, base)


def _low(entry: Any) -> int:
    found = entry.attributes.get("DW_AT_low_pc")
    return 0 if found is None else int(found.value)


def _covers(dwarf: Any, entry: Any, offset: int, base: int) -> bool:
    ranges, high = entry.attributes.get("DW_AT_ranges"), entry.attributes.get("DW_AT_high_pc")
    if ranges is not None:
        for part in dwarf.range_lists().get_range_list_at_offset(ranges.value):
            if hasattr(part, "base_address"):
                base = part.base_address
            elif base + part.begin_offset <= offset < base + part.end_offset:
                return True
        return False
    if high is None:
        return False
    low, size = _low(entry), int(high.value)
    return low <= offset < (size if high.form == "DW_FORM_addr" else low + size)
