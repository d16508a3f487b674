"""TensorFlow on the host only: it is imported nowhere else, kept off the accelerator, and kept quiet."""

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from bert_jax.core.errors import BertJaxError, first_line


@contextlib.contextmanager
def explain_missing_packages() -> Iterator[None]:
    """Wrap imports of packages that only the extra `train` installs; say how to install them if they are missing."""
    try:
        yield
    except ImportError as error:
        raise BertJaxError(
            f"tfds: and TensorFlow checkpoints need TensorFlow ({first_line(error)}); install it, "
            "in the folder that bert_jax was installed from: pip install '.[train]'"
        ) from error


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # no use for input pipelines, and it announces itself
# Triton, which torch installs for GPUs, crashes the process if it is loaded after TensorFlow, so load it first, unless
# another library has already loaded TensorFlow.
if "tensorflow" not in sys.modules and find_spec("triton"):
    with contextlib.suppress(ImportError):  # a Triton that cannot be loaded does no harm
        import triton._C.libtriton  # noqa: F401

with explain_missing_packages():
    import tensorflow as tf

# Otherwise TensorFlow would take all memory of a GPU, or the TPU itself, away from JAX.
for device_type in ("GPU", "TPU"):
    tf.config.set_visible_devices([], device_type)

__all__ = ["explain_missing_packages", "tf"]
