"""What a power cut would leave of files, told by strace: which data and which names were synced (F73)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_CALLS = "openat,open,creat,write,pwrite64,writev,ftruncate,link,linkat,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,fsync,fdatasync"
_LINE = re.compile(r"(?P<at>[\d.]+) (?P<call>\w+)\((?P<args>.*)\)\s+= (?P<got>-?\d+)(?:<(?P<path>[^>]*)>)?")
_WORD = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<folder>[^>]*)>, )?"(?P<name>[^"]*)"')
_DESCRIPTOR = re.compile(r"\d+<(?P<path>[^>]*)>")


def installed() -> str | None:
    """Return why there is no strace; it is installed once from Debian's package where that can be done."""
    if not shutil.which("strace") and os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with suppress(subprocess.TimeoutExpired):
            for words in (["update"], ["install", "-y", "--no-install-recommends", "strace"]):
                command = ["apt-get", "-q", *words]
                subprocess.run(
                    command, env=env, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=240
                )
    return None if shutil.which("strace") else "Debian's package strace is not there"


def volatile(folder: Path, script: str, *, seconds: float = 300) -> list[str]:
    """Run a script, and return what of the files below a folder a power cut behind it might take away.

    Each is `data of PATH`, written and not synced since, or `name of PATH`, in a folder that was not. Temporary names
    are nobody's. Skips the test where there is no strace.
    """
    why = installed()
    if why is not None:
        pytest.skip(why)
    folder.mkdir(parents=True, exist_ok=True)
    calls = folder.parent / f"{folder.name}-calls"
    calls.mkdir()
    command = ["strace", "-ff", "-ttt", "-y", "-s", "4096", "-e", f"trace={_CALLS}", "--seccomp-bpf", "-qq"]
    done = subprocess.run(
        [*command, "-o", str(calls / "t"), sys.executable, "-c", script],
        check=False, capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for file in calls.iterdir() for line in file.read_text(errors="replace").splitlines()]
    disk = _Disk(str(folder.resolve()))
    for line in sorted(lines, key=lambda text: text.partition(" ")[0]):
        call = _LINE.match(line)
        if call is not None and not call["got"].startswith("-"):
            disk.take(call["call"], call["args"], call["path"])
    assert disk.names, "nothing was written"
    return disk.volatile()


@dataclass
class _Data:
    synced: bool = True


@dataclass
class _Disk:
    """The names below a folder: what each stands for, and whether the name itself was synced."""

    root: str
    names: dict[str, _Data] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """Names that are durable."""

    def take(self, call: str, args: str, opened: str | None) -> None:
        """Follow a call that did what it was asked for."""
        paths = [os.path.normpath(Path(m["folder"] or "/", m["name"])) for m in _WORD.finditer(args)]
        descriptor = _DESCRIPTOR.match(args)
        match call:
            case "open" | "openat" | "creat":
                path = opened or paths[0]
                if "O_CREAT" in args and path not in self.names:
                    self._name(path, _Data())
                if "O_TRUNC" in args and path in self.names:
                    self.names[path].synced = False
            case "write" | "pwrite64" | "writev" | "ftruncate" if descriptor and descriptor["path"] in self.names:
                self.names[descriptor["path"]].synced = False
            case "mkdir" | "mkdirat":
                self._name(paths[0], _Data())
            case "link" | "linkat":
                self._name(paths[1], self.names.get(paths[0], _Data()))
            case "rename" | "renameat" | "renameat2":
                self._name(paths[1], self.names.pop(paths[0], _Data()))
            case "unlink" | "unlinkat" | "rmdir":
                self.names.pop(paths[0], None)
            case "fsync" | "fdatasync" if descriptor:
                self._synced(descriptor["path"])

    def _name(self, path: str, data: _Data) -> None:
        if path.startswith(self.root + "/") or path == self.root:
            self.names[path] = data
            self.named.discard(path)

    def _synced(self, path: str) -> None:
        if path in self.names:
            self.names[path].synced = True
        self.named.update(name for name in self.names if str(Path(name).parent) == path)

    def volatile(self) -> list[str]:
        """Return what is not durable."""
        missing = []
        for path, data in sorted(self.names.items()):
            if not Path(path).name.startswith(".tmp-"):
                missing += [] if data.synced else [f"data of {path}"]
                missing += [] if path in self.named else [f"name of {path}"]
        return missing
