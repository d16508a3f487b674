"""The axes of a device mesh, and what lies along them.

`data` holds copies of the model, `fsdp` and `tensor` hold parts of it; the rows of a batch are split over data and
fsdp. The training step maps over data, so inside a model a batch is one data shard's: its rows lie along fsdp, its
heads along tensor.
"""

import jax
from jax.sharding import PartitionSpec

DATA, FSDP, TENSOR = AXES = ("data", "fsdp", "tensor")

ROWS = PartitionSpec((DATA, FSDP))  # of a whole batch

# Inside a model.
SHARD_ROWS = PartitionSpec(FSDP)  # [B]
TOKENS = PartitionSpec(FSDP, None)  # [B, L]
SEEDS = PartitionSpec(FSDP, TENSOR)  # [B, H]
TABLE = PartitionSpec()  # of rotary positions
STATES = PartitionSpec(FSDP, None, TENSOR)  # [B, L, H x K]
FUSED_QKV = PartitionSpec(FSDP, None, None, TENSOR)  # [B, L, 3, H x K]


def platform() -> str:
    """Of the devices that the traced program is for: the mesh in context, or this process's own."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.abstract_device.platform if mesh.abstract_device else jax.default_backend()


def device_count() -> int:
    """Of the same devices, how many there are."""
    mesh = jax.sharding.get_abstract_mesh()
    return jax.device_count() if mesh.empty else mesh.size
