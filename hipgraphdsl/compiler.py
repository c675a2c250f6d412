"""Find the host's C++ compiler, and build shared libraries with it once.

Both the CPU runtime itself and the kernels that it runs are built here. A library is kept in the cache directory under
a name with the hash of everything that determines its contents, so two processes may build the same one at once.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from .cache import cache_folder
from .errors import lacks
from .progress import long_stage
from .settings import setting

log = logging.getLogger("hipgraphdsl")

#: Version of the interface between the runtime, the kernel libraries and the Python code; part of every cache key.
ABI_VERSION = 4

#: A build that takes longer than this is logged, because the first one may take a minute (zig unpacks its own libc).
_SLOW_S = 2.0

#: Keeps zig from linking its library of helpers (128-bit division etc.), which it has to compile first, once per cache.
WITHOUT_HELPERS = "-rtlib=none"

#: System libraries that are linked.
_LIBRARIES: Final = () if sys.platform == "darwin" else ("-lpthread", "-ldl")

#: Held while a thread probes the compilers, so that other threads wait for its result.
_FINDING = threading.Lock()
#: Options that add the user's files; "light" is a folder of `rtc`.
_READS_FILES = re.compile(r"-I(?!light$)|-i(nclude|system|quote)|--(include-path|pre-include)")


class BuildFailed(Exception):
    """The compiler rejected a source; `log` is its output."""

    def __init__(self, compiler: Compiler, log: str) -> None:
        super().__init__(f"{compiler} could not build it:\n{log}")
        self.log = log


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler of this machine."""

    command: tuple[str, ...]  # how to call it: ("/usr/bin/clang++",) or (python, "-m", "ziglang", "c++")
    kind: Literal["clang", "zig", "gcc"]  # zig is the clang inside the ziglang wheel; its flags are clang's
    version: str  # first line of what ``--version`` prints

    def __str__(self) -> str:
        return shlex.join(self.command)

    @property
    def name(self) -> str:
        """A short name: the program's, or that of zig's package."""
        return "ziglang" if self.kind == "zig" else Path(self.command[0]).name

    @property
    def why(self) -> str:
        """Why it is the one that is taken, and what that costs."""
        if setting("HIPGRAPHDSL_CXX"):
            return "HIPGRAPHDSL_CXX names it"
        if self.kind == "zig":
            return (
                "taken before g++: most kernels run several times as fast, and the first build takes some 20 s where g++ takes 3;"
                " HIPGRAPHDSL_CXX=g++ takes g++"
            )
        if self.kind == "clang":
            return "taken before all others: most kernels run several times as fast as with g++"
        return "there is no clang++ and no ziglang; with one of them most kernels run several times as fast"

    @property
    def is_clang(self) -> bool:
        """Whether it accepts clang's pragmas and options."""
        return self.kind != "gcc"

    @property
    def major(self) -> int:
        """Major version; 0 if the version text has none."""
        found = re.search(r"(\d+)\.\d+", self.version)
        return int(found[1]) if found else 0

    def library_options(self) -> tuple[str, ...]:
        """Return options that make a shared library for this CPU that needs no C++ library at run time."""
        options = ["-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"]
        intel = platform.machine().lower() in {"x86_64", "amd64", "i686"}
        options += ["-fno-threadsafe-statics", "-march=native" if intel else "-mcpu=native"]
        if sys.platform != "darwin":
            options.append("-Wl,-Bsymbolic")
        if self.is_clang:
            # zig would build its own libc++ first, which takes most of a minute; gcc 12 does not know the option, and
            # its libstdc++ is on the machine anyway.
            options.append("-nostdlib++")
        if self.kind == "zig":
            # zig traps on undefined behaviour by default, which costs time and turns HIP's idioms into crashes.
            options += ["-fno-sanitize=undefined", "-fno-stack-protector"]
        return tuple(options)


@functools.cache
def cpu_features() -> str:
    """Return a hash of the CPU's features for ``-march=native``; machines that share a cache may differ in them."""
    text = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key = line.partition(":")[0].strip()
            if key in {"model name", "flags", "Features", "CPU part"}:
                text += "\n" + line
            elif not line.strip():
                break  # the first processor represents all
    except OSError:
        text += platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()


def _environment() -> dict[str, str]:
    environment = dict(os.environ, LC_ALL="C")
    environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_folder("zig")))
    environment.setdefault("ZIG_LOCAL_CACHE_DIR", environment["ZIG_GLOBAL_CACHE_DIR"])
    return environment


def _probe(command: Sequence[str]) -> Compiler | None:
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=120, env=_environment(), check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not done.stdout.strip():
        return None
    kind: Literal["clang", "zig", "gcc"] = "gcc"
    if "clang" in done.stdout:
        kind = "zig" if "ziglang" in command or Path(command[0]).name == "zig" else "clang"
    return Compiler(tuple(command), kind, done.stdout.splitlines()[0].strip())


@functools.lru_cache(maxsize=4)
def _find(chosen: str | None, path: str | None) -> Compiler:
    if chosen:
        command = tuple(shlex.split(chosen))
        found = _probe(command)
        if found is None:
            why = (
                f"cannot use the compiler in HIPGRAPHDSL_CXX, {chosen!r}: `{chosen} --version` fails; name a C++ compiler that"
                " works, or unset the variable"
            )
            raise lacks("cpu", "compiler", why)
        return found
    candidates: list[tuple[str, ...]] = []
    if clang := shutil.which("clang++"):
        candidates.append((clang,))
    if importlib.util.find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
    for name in ("c++", "g++"):
        if other := shutil.which(name):
            candidates.append((other,))
    for command in candidates:
        if (found := _probe(command)) is not None:
            return found
    raise lacks("cpu", "compiler", "compiles kernels and found no C++ compiler: install one, or `pip install ziglang`")


def find_compiler() -> Compiler:
    """Return the compiler to use: $HIPGRAPHDSL_CXX, clang++, the ziglang wheel's clang, else c++ or g++.

    Raises
    ------
    RuntimeUnavailable
        With ``missing="compiler"`` if there is none.
    """
    with _FINDING:
        return _find(setting("HIPGRAPHDSL_CXX") or None, os.environ.get("PATH"))


def forget_compiler() -> None:
    """Clear the cached compiler, so that the next call searches again."""
    _find.cache_clear()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on `path`, so that one of two processes builds and the other finds the result."""
    import fcntl

    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks costs a second build, never a wrong one: the result is renamed into place.
            log.debug("no file locks in %s", path.parent)
        yield


def _key(compiler: Compiler, sources: tuple[tuple[str, str], ...], options: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for part in (str(ABI_VERSION), compiler.version, *compiler.command, cpu_features(), "\0".join(options)):
        digest.update(part.encode() + b"\0\0")
    for name, text in sources:
        digest.update(name.encode() + b"\0" + text.encode() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is preprocessed and transformed before it is compiled.

    `finish` turns the preprocessor's output into the text to compile. `leave_out` takes the compiler's log for a text that it
    rejected, and returns whether `finish` now produces a different text.
    """

    options: tuple[str, ...]  # for the preprocessor alone
    finish: Callable[[str], str]
    leave_out: Callable[[str], bool]
    also: tuple[str, ...]  # other inputs of `finish`, for the cache key


def build(
    compiler: Compiler,
    sources: str | Mapping[str, str],
    options: Sequence[str] = (),
    *,
    stem: str = "kernels",
    what: str = "kernels",
    reading: Reading | None = None,
) -> Path:
    """Build a shared library, or find it in the cache; return its path, for which `build_log` returns the compiler's warnings.

    Parameters
    ----------
    sources : str or mapping
        One C++ source, or texts by file name; every ``.cpp`` among them is compiled, the others can be included.
    options : sequence of str
        Options beyond `Compiler.library_options`, such as ``-O3`` and ``-DN=4``.
    stem : str
        Beginning of the library's file name.
    what : str
        Description of the library, for the log line of a long build.
    reading : Reading, optional
        How the one ``.cpp`` is preprocessed and finished first.

    Raises
    ------
    BuildFailed
        If the compiler rejects the source; `log` is its output.
    RuntimeUnavailable
        If the compiler was found but can no longer be started.
    """
    texts = {f"{stem}.cpp": sources} if isinstance(sources, str) else dict(sources)
    flags = (*compiler.library_options(), *options)
    cache = cache_folder()
    unit = f"{stem}.cpp"
    said = read = ""
    also = () if reading is None else (*reading.options, *reading.also)
    # If the user's own files are included, the cache key covers the preprocessed text.
    outside = reading is not None and reads_files(reading.options, texts[unit])
    if reading is not None and outside:
        with _folder(texts, cache) as folder:
            read, said = _preprocessed(compiler, flags, reading, folder, unit, what)
        texts[unit] = reading.finish(read)
    linked = [*flags, *_LIBRARIES]
    key = _key(compiler, tuple(sorted(texts.items())), (*linked, *_with_fewer_libraries(compiler, linked), *also))
    target = cache / f"{stem}-{key[:32]}.so"
    if target.exists():
        return target
    with _locked(cache / f"{target.stem}.lock"):
        if target.exists():
            return target
        with _folder(texts, cache) as folder:
            # Built in a temporary folder and renamed: a reader never sees a partial library, even if the build is killed.
            if reading is not None and not outside:
                read, said = _preprocessed(compiler, flags, reading, folder, unit, what)
                (folder / unit).write_text(reading.finish(read))
            units = sorted(file for file in texts if file.endswith(".cpp"))
            while True:
                try:
                    said += _linked(compiler, flags, folder, target.name, units, what)
                    break
                except BuildFailed as failed:
                    if reading is None or not reading.leave_out(failed.log):
                        raise
                    (folder / unit).write_text(reading.finish(read))
            (folder / "log").write_text(said)
            os.replace(folder / "log", target.with_suffix(".log"))
            os.replace(folder / target.name, target)
    return target


def _preprocessed(
    compiler: Compiler, flags: Sequence[str], reading: Reading, folder: Path, unit: str, what: str
) -> tuple[str, str]:
    """Preprocess a source in a folder; return the preprocessed text and the compiler's output."""
    said = _run(compiler, [*flags, *reading.options, "-E", "-o", "preprocessed", unit], folder, what)
    if not (folder / "preprocessed").is_file():
        raise _nothing_written(compiler, said, flags)
    return (folder / "preprocessed").read_text(errors="replace"), said


def _linked(compiler: Compiler, flags: Sequence[str], folder: Path, name: str, units: Sequence[str], what: str) -> str:
    """Compile and link sources in a folder to a library; return the compiler's output."""
    arguments = [*flags, "-o", name, *units, *_LIBRARIES]
    alone = _with_fewer_libraries(compiler, arguments)
    try:
        try:
            said = _run(compiler, alone, folder, what)
        except BuildFailed as failed:
            if alone == arguments or not re.search("undefined (symbol|reference)", failed.log):
                raise
            said = _run(compiler, arguments, folder, what)
    except BuildFailed as failed:
        if "FileNotFound" not in failed.log:  # zig's message if its clang wrote no file
            raise
        said = failed.log
    if not (folder / name).is_file():
        raise _nothing_written(compiler, said, flags)
    return said


def _with_fewer_libraries(compiler: Compiler, arguments: list[str]) -> list[str]:
    """Return arguments that link most libraries faster; linking fails for libraries that need more."""
    if sys.platform == "darwin" or WITHOUT_HELPERS in arguments:
        return arguments
    if compiler.kind == "zig":
        # Compiling the helpers takes longer than everything else, and few libraries need them.
        return [*arguments, WITHOUT_HELPERS, "-Wl,-z,defs"]
    if compiler.kind == "gcc" and "-nostdinc++" in arguments:
        # Reading the C++ library takes more than half of the link time; few sources that do not include its headers need it.
        kept = [word for word in arguments if word != "-lstdc++"]
        return [*kept, "-nodefaultlibs", "-Wl,-z,defs", "-lm", "-lgcc", "-lc"]
    return arguments


def _nothing_written(compiler: Compiler, said: str, flags: Sequence[str]) -> BuildFailed:
    advice = "no library was written; leave out the option that stops the compiler from it"
    return BuildFailed(compiler, f"{said}\n{advice}: {shlex.join(flags[len(compiler.library_options()) :])}")


def syntax_tree(compiler: Compiler, text: str, name: str, options: Sequence[str] = ()) -> str:
    """Return clang's syntax tree of the functions whose name contains `name`, as JSON; empty if there is none, or on an error."""
    with tempfile.TemporaryDirectory(prefix="tree.", dir=cache_folder()) as folder:
        (Path(folder) / "text.cpp").write_text(text)
        flags = ["-fsyntax-only", "-w", "-Xclang", "-ast-dump=json", "-Xclang", f"-ast-dump-filter={name}", "text.cpp"]
        command = [*compiler.command, *compiler.library_options(), *options, *flags]
        # zig fails after clang has succeeded, because clang wrote no object: FileNotFound.
        done = subprocess.run(command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    # Code with errors is missing from the tree.
    wrong = re.search(rb":\d+:\d+: (?:fatal )?error: (?!.*FileNotFound)", done.stderr)
    return "" if wrong else done.stdout.decode(errors="replace")


def reads_files(options: Sequence[str], source: str) -> bool:
    """Return whether a source may include the user's own files, by options of any platform's compiler or by absolute paths."""
    return any(map(_READS_FILES.match, options)) or bool(re.search(r'^\s*#\s*include\s*["<]/', source, re.MULTILINE))


@contextmanager
def _folder(texts: Mapping[str, str], cache: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="build.", dir=cache) as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        yield folder


def _run(compiler: Compiler, arguments: Sequence[str], folder: Path, what: str) -> str:
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [*compiler.command, *arguments],
            cwd=folder,
            env=_environment(),
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        why = f"cannot start its compiler '{compiler}': {error.strerror}; install a C++ compiler, or `pip install ziglang`"
        raise lacks("cpu", "compiler", why) from error
    with process:
        try:
            try:
                said, _ = process.communicate(timeout=_SLOW_S)
            except subprocess.TimeoutExpired:
                log.info("building %s with %s; the first build on a machine may take a minute", what, compiler)
                with long_stage(f"{compiler.name} builds {what}, once"):
                    said, _ = process.communicate()
                log.info("built %s in %.1f s", what, time.monotonic() - started)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise BuildFailed(compiler, said)
    return said


def build_log(library: Path) -> str:
    """Return what the compiler printed when it built `library`: its warnings; empty if there were none."""
    try:
        return library.with_suffix(".log").read_text()
    except OSError:
        return ""
