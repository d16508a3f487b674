"""The folder beside JAX's compiled programs in which results of this device are kept, and what names them."""

import hashlib
import os
import stat
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax

import bert_jax

PACKAGE = Path(bert_jax.__file__).parent
HASH = hashlib.sha256
LIBRARIES = "jax", "jaxlib", "flax", "numpy"


def kept_folder() -> Path | None:
    """Return the folder; None if JAX has no cache on this machine's disk, if others may write there, and where the
    processes of a run must find the same, or a program is for another device than the first."""
    settings = jax.config
    cache_folder, is_on = settings.jax_compilation_cache_dir, settings.jax_enable_compilation_cache
    if not cache_folder or not is_on or "://" in cache_folder:
        return None
    if jax.process_count() > 1 or settings.jax_default_device:
        return None
    folder = Path(cache_folder) / "executables"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if is_private(folder) else None
    except OSError:
        return None


def is_private(folder: Path) -> bool:
    """Return whether nobody but this user may write to a folder."""
    status = folder.stat()
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return is_own and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def device_facts() -> tuple:
    """Return the kind of this process's first device, and the versions of what compiles for it."""
    device = jax.local_devices()[0]
    client, versions = device.client, [version(library) for library in LIBRARIES]
    return client.platform, client.platform_version, device.device_kind, versions


@cache
def hash_sources(*patterns: str) -> str:
    """Return a hash of those of the package's files that match."""
    digest = HASH()
    for pattern in patterns:
        for file in sorted(PACKAGE.glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()
