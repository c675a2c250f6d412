"""A store of keys and values in a folder, with the methods of torch's Store that ranks ask for."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path


class FileStore:
    """The store in a folder, for every process that names the same one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", "+")

    def set(self, key: str, value: bytes) -> None:
        made = self.folder / f".{os.getpid()}.{threading.get_ident()}"
        made.write_bytes(value)
        made.replace(self._path(key))

    def get(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._path(key).exists() for key in keys)

    def delete_key(self, key: str) -> bool:
        self._path(key).unlink()
        return True
