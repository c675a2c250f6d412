"""The cache folder of compiled kernels, libraries and measured costs; private to the user, because its contents are executed.

It is ``$HIPGRAPHDSL_CACHE_DIR``, or the user's cache folder of the platform. If other users can write to that folder, or this
process cannot, a temporary folder of this process is used instead, with a warning.
"""

from __future__ import annotations

import functools
import logging
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import platformdirs

from .settings import setting

_log = logging.getLogger("hipgraphdsl")


def wanted_folder(kind: str = "") -> Path:
    """Return the path of the cache, or of its subfolder for a kind of files; does not create or check it."""
    chosen = setting("HIPGRAPHDSL_CACHE_DIR")
    return (Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("hipgraphdsl")) / kind


def private_folder(kind: str = "", *, make: bool = True) -> Path:
    """Return `wanted_folder`; with `make`, create it with mode 0700 if it does not exist.

    Raises
    ------
    OSError
        If it does not exist or cannot be created, belongs to neither this user nor root, or is writeable by other users.
    """
    for folder in dict.fromkeys((wanted_folder(), wanted_folder(kind))):
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if os.name == "posix" and found.st_uid not in (os.geteuid(), 0):
            raise PermissionError(f"{folder} belongs to user {found.st_uid}, who could put code there that you then run")
        if os.name == "posix" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{folder} can be written by other users (mode {stat.S_IMODE(found.st_mode):04o}); delete it")
    return folder


def cache_folder(kind: str = "") -> Path:
    """Return the private folder for a kind of files; if it is unusable, log a warning and return a temporary one."""
    try:
        folder = private_folder(kind)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(f"this process may not write there (mode {stat.S_IMODE(folder.stat().st_mode):04o})")
        return folder
    except OSError as error:
        return _temporary(str(wanted_folder(kind)), kind, str(error.strerror or error))


@functools.cache
def _temporary(wanted: str, kind: str, reason: str) -> Path:
    fallback = Path(tempfile.mkdtemp(prefix=f"hipgraphdsl-{kind}"))
    _log.warning(
        "the cache directory %s cannot be used (%s), so what is compiled is kept for this process only, in %s; "
        "set HIPGRAPHDSL_CACHE_DIR to a directory that only you can write",
        wanted,
        reason,
        fallback,
    )
    return fallback


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: write a temporary file in the same folder, then rename it."""
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
