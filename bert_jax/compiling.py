"""Compiled programs, kept from one process to the next."""

import os
import sys

from bert_jax.errors import BertJaxError
from bert_jax.files import programs_home

# JAX's settings: name -> (its default, ours).
KEEPING = {
    "jax_persistent_cache_min_compile_time_secs": (1.0, 0.1),
    # JAX looks at every program that it keeps whenever it keeps another one: 6,000 of them take 0.4 s.
    "jax_compilation_cache_max_size": (-1, 2**28),
}


def keep_programs() -> None:
    """Lets JAX keep what it compiles in `programs_home()`, for this process and those after it.

    A directory that is chosen already stays: by JAX_COMPILATION_CACHE_DIR, where "" is none, or in `jax.config`.
    """
    jax = sys.modules.get("jax")
    chosen = "JAX_COMPILATION_CACHE_DIR" in os.environ or (
        jax and jax.config.jax_compilation_cache_dir is not None
    )
    # Processes that compile one program together must all compile it, or none: each machine has its own directory.
    if chosen or (jax and jax.distributed.is_initialized()):
        return
    try:
        folder = programs_home()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, BertJaxError):  # nobody's home, or one that cannot be written to
        return
    if not os.access(folder, os.W_OK | os.X_OK):  # a read-only home keeps nothing
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
