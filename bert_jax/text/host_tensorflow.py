"""TensorFlow for the host alone: imported here and nowhere else, kept off the accelerator, and quiet."""

import contextlib
import os
from importlib.util import find_spec

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # no use for input pipelines, and it announces itself
# Triton, which torch brings for GPUs, crashes the process when it is loaded after TensorFlow.
if find_spec("triton"):
    with contextlib.suppress(ImportError):  # one that cannot be loaded here does no harm
        import triton._C.libtriton  # noqa: F401

import tensorflow as tf  # noqa: E402

# It would otherwise take all memory of a GPU, or the TPU itself, from JAX.
for kind in ("GPU", "TPU"):
    tf.config.set_visible_devices([], kind)

__all__ = ["tf"]
