"""`tools/setup.py`: what is installed is what the lock says."""

from __future__ import annotations

import stat

import pytest

from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import RootUnsafe
from tools.setup import LOCK, ROOT, close_to_others, fingerprint, pinned, version_of

SAMPLE = """\
other-uv==1.0 \\
    --hash=sha256:00
    # via uv
uv==2.0 \\
    --hash=sha256:11 \\
    --hash=sha256:22
    # via penstock
uvicorn==3.0 ; sys_platform != 'win32' \\
    --hash=sha256:33
"""


def test_a_requirement_is_cut_out_with_all_its_hashes_and_nothing_else():
    """The one package goes to pip, which can check it."""
    assert pinned(SAMPLE, "uv") == "uv==2.0 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"
    assert pinned(SAMPLE, "uvicorn").startswith("uvicorn==3.0 ;")
    assert version_of(pinned(SAMPLE, "uvicorn")) == "3.0"


def test_a_package_that_the_lock_lacks_is_an_error():
    """Nothing is installed that is not pinned."""
    with pytest.raises(LookupError, match="pip"):
        pinned(SAMPLE, "pip")


def test_the_lock_holds_uv_and_what_builds_packages():
    """Set-up needs both before it can install the rest."""
    lock = LOCK.read_text()
    assert all("--hash=sha256:" in pinned(lock, name) for name in ("uv", "setuptools"))


def test_the_stamp_changes_with_everything_that_decides_what_is_installed(tmp_path):
    """Lock, pyproject, Python and place each make the stamp another one; the same ones do not."""
    base = fingerprint(ROOT, "3.11.7", b"lock", b"project")
    others = [
        fingerprint(tmp_path, "3.11.7", b"lock", b"project"),
        fingerprint(ROOT, "3.11.8", b"lock", b"project"),
        fingerprint(ROOT, "3.11.7", b"lock2", b"project"),
        fingerprint(ROOT, "3.11.7", b"lock", b"project2"),
        fingerprint(ROOT, "3.11.7", b"lockp", b"roject"),
    ]
    assert base == fingerprint(ROOT, "3.11.7", b"lock", b"project")
    assert len({base, *others}) == 6


def test_a_clone_made_for_a_group_gives_a_root_that_jobs_take(tmp_path):
    """Git leaves folders writable for the group under umask 002, and a checkpoint root must not be (F65)."""
    root = tmp_path / "checkpoints"
    root.mkdir()
    root.chmod(0o2775)
    with pytest.raises(RootUnsafe):
        LocalStore(root)
    close_to_others(root)
    LocalStore(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o2755
