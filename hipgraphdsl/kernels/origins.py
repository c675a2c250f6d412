"""Where the source of a module was written, and compilers' messages with that place."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a source was read from, or with `line`, the Python file and the line that declared it."""

    file: str
    line: int = 0

    def first_line(self, source: str) -> int:
        """Return the line of the file on which a source begins; 0 if it does not stand there as it is."""
        if not self.line:
            return 1
        lines = "".join(linecache.getlines(self.file))
        at = lines.find(source) if source.strip() else -1
        return 0 if at < 0 else 1 + lines.count("\n", 0, at)

    def placed(self, message: str, name: str, source: str) -> str:
        """Return a compiler's message about the module `name` with the lines of the user's file."""
        first = self.first_line(source)
        if not first:
            return f"{message}\n(the source is declared at {self.file}:{self.line})"
        names = "|".join(re.escape(known) for known in dict.fromkeys((name, re.sub(r"[^\w.+-]", "_", name))))

        own = re.compile(rf"(?<![\w./-])(?:{names})(?:\.hip)?([:(])(\d+)")
        lines, mine = message.split("\n"), False
        for n, line in enumerate(lines):
            quoted = re.match(r"( *)(\d+)(?= \|)", line)
            if quoted is not None and mine:
                lines[n] = f"{first + int(quoted[2]) - 1:>{quoted.end()}}{line[quoted.end() :]}"
            elif re.match(r"\S*[:(]\d+", line) or own.search(line):  # a diagnostic, of this file or of a header
                mine = own.search(line) is not None
                lines[n] = own.sub(lambda found: f"{self.file}{found[1]}{first + int(found[2]) - 1}", line)
        return "\n".join(lines)
