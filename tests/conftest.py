import os

# Before JAX is imported: tests run on the CPU, also where libtpu is installed and there is no TPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
