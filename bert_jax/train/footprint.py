"""How much memory the steps of a run need on each device, at least, before anything is compiled."""

from dataclasses import dataclass

from jax.sharding import Mesh

from bert_jax import memory
from bert_jax.models.cost import activation_bytes
from bert_jax.train.config import RunConfig
from bert_jax.train.state import State, least_bytes
from bert_jax.train.task import Data, Task


@dataclass(frozen=True)
class Footprint:
    state: float  # bytes of parameters, gradients and the optimizer's moments
    activations: float  # bytes that the backward pass needs of the longest rows
    devices: int  # that share the memory they are in
    device: object  # whose memory it is; None: this machine's

    @property
    def bytes(self) -> float:
        return (self.state + self.activations) * self.devices

    def require(self) -> None:
        memory.require(
            self.bytes, "this run",
            "set a smaller --config.data.batch, --config.mesh.accumulate=2 or more, or a smaller model", self.device,
        )  # fmt: skip


def footprint(task: Task, data: Data, config: RunConfig, mesh: Mesh, abstract: State) -> Footprint:
    """`abstract`: the shapes of the run's state on the mesh."""
    rows = data.batch // mesh.size // config.mesh.accumulate
    length = max(data.length(step) for step in (0, max(config.steps - 1, 0)))
    model = task.layouts[""].config
    device = mesh.local_devices[0]
    on_host = device.platform == "cpu"
    return Footprint(
        least_bytes(abstract),
        rows * length * model.layers * activation_bytes(model),
        len(mesh.local_devices) if on_host else 1,
        None if on_host else device,
    )
