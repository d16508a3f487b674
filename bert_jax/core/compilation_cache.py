"""What JAX is told before its first program: where compiled programs are kept on disk, so that later processes need not
compile them again, and not to look for a TPU on a machine that has none."""

import os
import sys
from glob import glob
from importlib.util import find_spec

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import compilation_cache_home

# JAX settings: name -> (JAX's default, ours).
KEEPING = {
    "jax_persistent_cache_min_compile_time_secs": (1.0, 0.1),
    # JAX checks every cached program whenever it adds one: with 6,000 of them this takes 0.4 s.
    "jax_compilation_cache_max_size": (-1, 2**28),
}
# Device files; /dev/vfio/vfio exists without any device.
ACCELERATORS = ("/dev/accel*", "/dev/vfio/[0-9]*", "/dev/nvidia*", "/dev/kfd")


def avoid_missing_tpu() -> None:
    """Choose the CPU where libtpu is installed, but there is no accelerator: libtpu would report the missing TPU.

    A choice of the user stays, and so does one that JAX made when it was first used."""
    if sys.platform != "linux" or not find_spec("libtpu") or any(map(glob, ACCELERATORS)):
        return
    if (jax := sys.modules.get("jax")) is None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    elif not jax.config.jax_platforms:
        jax.config.update("jax_platforms", "cpu")


def enable_compilation_cache() -> None:
    """Let JAX cache the programs that it compiles in `compilation_cache_home()`, for this process and later ones.

    If the user has chosen a cache directory, by JAX_COMPILATION_CACHE_DIR ("" for no cache) or in `jax.config`, that
    choice stays.
    """
    jax = sys.modules.get("jax")
    chosen = "JAX_COMPILATION_CACHE_DIR" in os.environ or (
        jax and jax.config.jax_compilation_cache_dir is not None
    )
    # The processes of a distributed run must either all compile a program or none of them, but each machine has its own
    # cache directory.
    if chosen or (jax and jax.distributed.is_initialized()):
        return
    try:
        folder = compilation_cache_home()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, BertJaxError):  # no home directory, or a read-only one
        return
    if not os.access(folder, os.W_OK | os.X_OK):  # exists, but is read-only
        return
    if jax is None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        for name, (_, value) in KEEPING.items():
            os.environ.setdefault(name.upper(), str(value))
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    for name, (default, value) in KEEPING.items():
        if getattr(jax.config, name) == default:
            jax.config.update(name, value)
