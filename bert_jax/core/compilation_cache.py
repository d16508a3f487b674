"""A cache on disk of the programs that JAX compiles, so that later processes need not compile them again."""

import os
import sys

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import compilation_cache_home

# JAX settings: name -> (JAX's default, ours).
KEEPING = {
    "jax_persistent_cache_min_compile_time_secs": (1.0, 0.1),
    # JAX checks every cached program whenever it adds one: with 6,000 of them this takes 0.4 s.
    "jax_compilation_cache_max_size": (-1, 2**28),
}


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
