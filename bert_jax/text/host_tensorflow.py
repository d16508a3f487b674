"""TensorFlow for the host alone: imported here and nowhere else, kept off the accelerator, and quiet."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # no use for input pipelines, and it announces itself
import tensorflow as tf  # noqa: E402

# It would otherwise take all memory of a GPU, or the TPU itself, from JAX.
for kind in ("GPU", "TPU"):
    tf.config.set_visible_devices([], kind)

__all__ = ["tf"]
