"""The axes of a device mesh, and how arrays are split over them.

The model is replicated over `data`, and split over `fsdp` and `tensor`. The rows of a batch are split over data and
fsdp. The training step maps over data, so inside a model a batch is that of one data shard: its rows are split over
fsdp, its heads over tensor.
"""

import jax
from jax.sharding import PartitionSpec

DATA, FSDP, TENSOR = AXES = ("data", "fsdp", "tensor")

ROWS = PartitionSpec((DATA, FSDP))  # the rows of a whole batch

# Inside a model:
SHARD_ROWS = PartitionSpec(FSDP)  # [B]
TOKENS = PartitionSpec(FSDP, None)  # [B, L]
SEEDS = PartitionSpec(FSDP, TENSOR)  # [B, H]
TABLE = PartitionSpec()  # rotary tables
STATES = PartitionSpec(FSDP, None, TENSOR)  # [B, L, H x K]
FUSED_QKV = PartitionSpec(FSDP, None, None, TENSOR)  # [B, L, 3, H x K]


def platform() -> str:
    """Return the platform of the traced program: that of the mesh in context, or that of this process."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.abstract_device.platform if mesh.abstract_device else jax.default_backend()


def device_kind() -> str:
    """Return the kind of the devices of the traced program, as JAX names it: "cpu", "TPU v5 lite"."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.abstract_device.device_kind if mesh.abstract_device else jax.devices()[0].device_kind


def device_count() -> int:
    """Return the number of devices of the traced program: those of the mesh in context, or all."""
    mesh = jax.sharding.get_abstract_mesh()
    return jax.device_count() if mesh.empty else mesh.size
