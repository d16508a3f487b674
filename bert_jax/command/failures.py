"""What libraries raise for want of memory or a device, in one line."""

import os
import sys

from bert_jax.errors import BertJaxError, first_line, of_system

LESS = "take a smaller batch, shorter texts or a smaller model, or a machine with more memory"


def explained(error: Exception) -> BertJaxError | None:
    """None where it is a fault of this program, whose traceback is wanted."""
    # Whoever opens a file names it; a connection has none.
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        return of_system(error, error.filename or "standard output")
    text = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return BertJaxError(f"out of memory ({first_line(error)}); {LESS}")
    if "jax" in sys.modules and not has_device():
        asked = os.environ.get("JAX_PLATFORMS", "")
        named = f" {asked!r:.40}" if asked else ""
        remedy = "unset JAX_PLATFORMS" if asked else "set JAX_PLATFORMS=cpu"
        return BertJaxError(
            f"JAX finds no device{named} here; {remedy}, or install the jax that is made for the device"
        )
    return None


def has_device() -> bool:
    import jax

    try:
        return bool(jax.devices())
    except Exception:  # RuntimeError of most platforms, a bare AssertionError of others
        return False
