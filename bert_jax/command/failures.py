"""Errors of libraries that need no traceback, such as a lack of memory or of a device, in one line."""

import os
import sys

from bert_jax.core.errors import BertJaxError, explain_os_error, first_line

WITHOUT_JAX = ("jax", "flax", "optax", "orbax", "ml_collections")  # what launch/light.sh leaves out
MEMORY_REMEDY = "take a smaller batch, shorter texts or a smaller model, or a machine with more memory"


def explain_error(error: Exception) -> BertJaxError | None:
    """Return an error with one line for the user; None for a bug in this program, which needs its traceback."""
    # An error of a file names the file; that of a connection has no name.
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        return explain_os_error(error, error.filename or "standard output")
    if isinstance(error, ModuleNotFoundError) and error.name in WITHOUT_JAX:
        return BertJaxError(
            f"{error.name} is not installed here, so only embed, predict, rerank, search and evaluate work, with "
            "--engine onnxruntime; pip install bert-jax for all"
        )
    text = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return BertJaxError(f"out of memory ({first_line(error)}); {MEMORY_REMEDY}")
    if "jax" in sys.modules and not has_device():
        asked = os.environ.get("JAX_PLATFORMS", "")
        named = f" {asked!r:.40}" if asked else ""
        remedy = "unset JAX_PLATFORMS" if asked else "set JAX_PLATFORMS=cpu"
        return BertJaxError(
            f"JAX finds no device{named} here; {remedy}, or install the build of JAX for your device"
        )
    return None


def has_device() -> bool:
    import jax

    try:
        return bool(jax.devices())
    except Exception:  # most platforms raise a RuntimeError, others a bare AssertionError
        return False
