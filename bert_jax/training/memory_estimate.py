"""How much memory a step needs on each device, estimated before it is compiled, and settings with which it fits."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.core import memory
from bert_jax.core.errors import BertJaxError
from bert_jax.data.batch_source import BatchSource
from bert_jax.models.cost import activation_bytes
from bert_jax.models.mesh import DATA, FSDP, TENSOR
from bert_jax.training.gradient import add_row_indices
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import (
    StepConstants,
    TrainState,
    abstract_constants,
    compute_outputs,
    device_bytes,
    least_bytes,
)
from bert_jax.training.task import Task

AMPLE_RATIO = 4  # if more than this many times the least need is free, nothing is estimated
# The estimate was 0.78 (with remat) to 1.09 (with bfloat16 on a CPU) times what compiled steps take.
# Refuse if less than this share of the estimate is free, so that no run that fits is refused.
REFUSE_RATIO = 0.9
PROPOSE_RATIO = 1.3  # propose settings only if this many times their estimate is free
OUTPUTS = 2  # copies of the outputs beside the one that the backward pass keeps: the losses' own, and their gradient

Batch = dict[str, jax.ShapeDtypeStruct]


@dataclass(frozen=True)
class MemoryEstimate:
    task: Task
    config: RunConfig
    mesh: Mesh
    batch: Batch  # the shapes of the longest batch of the run, over all devices
    abstract: TrainState

    @property
    def microbatch_rows(self) -> int:
        """The number of rows in a device's microbatch."""
        shards = self.mesh.shape[DATA] * self.mesh.shape[FSDP]
        return self.batch["input_ids"].shape[0] // shards // self.config.mesh.gradient_accumulation_steps

    @property
    def device(self) -> jax.Device | None:
        """The device whose memory is used; None: the memory of this machine."""
        device = self.mesh.local_devices[0]
        return None if device.platform == "cpu" else device

    @property
    def devices(self) -> int:
        """The number of devices that share this memory."""
        return 1 if self.device else len(self.mesh.local_devices)

    @property
    def state(self) -> int:
        """Bytes on a device of parameters, gradients, their sums over microbatches, and the optimizer's moments."""
        params = dataclasses.replace(self.abstract, optimizer=())
        sum_bytes = least_bytes(params) // 2 if self.config.mesh.gradient_accumulation_steps > 1 else 0
        return least_bytes(self.abstract) + sum_bytes + device_bytes(self.frozen)

    @property
    def frozen(self) -> dict:
        """The parameters beside adapters, as shapes on the mesh."""
        return (
            abstract_constants(self.task, self.config, self.mesh).frozen if self.config.adapter.rank else {}
        )

    @property
    def lower_bound(self) -> int:
        """The least bytes that the step needs, without tracing: of activations, only what products and norms read."""
        model, tokens = self.task.layouts[""].config, self.microbatch_rows * self.batch["input_ids"].shape[1]
        activations = tokens * model.num_hidden_layers * activation_bytes(model) // self.mesh.shape[TENSOR]
        return self.devices * (self.state + activations)

    @property
    def activations(self) -> int:
        """Bytes on a device of what the forward pass keeps for the backward pass, of the model's outputs, such as
        logits, and of the widest states of a layer."""
        params, frozen = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (self.abstract.params, self.frozen)
        )
        count = self.microbatch_rows * self.mesh.shape[FSDP]  # of a data shard: those that the model sees
        rows = {
            name: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype)
            for name, leaf in self.batch.items()
        }

        def forward(params, frozen, rows):
            key = jax.random.key(0, impl=self.config.prng_impl)
            constants = StepConstants(0, 0, self.task.constants(), frozen)
            outputs = compute_outputs(self.task, self.config, params, add_row_indices(rows), constants, key)
            return sum(loss.mean for loss in self.task.losses(outputs, rows).values()), outputs

        def traced(params, frozen, rows):
            _, backward, outputs = jax.vjp(lambda params: forward(params, frozen, rows), params, has_aux=True)
            return backward, outputs

        with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
            backward, outputs = jax.eval_shape(traced, params, frozen, rows)
            model = self.task.layouts[""].config
            width = model.intermediate_size * (2 if model.computed_dtype == "bfloat16" else 4)
        # The backward pass keeps parameters, too, but they are already counted with the state.
        param_shapes = {(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((params, frozen))}
        kept = [leaf for leaf in jax.tree.leaves(backward) if (leaf.shape, leaf.dtype) not in param_shapes]
        widest = count * self.batch["input_ids"].shape[1] * width
        total = tree_bytes(kept) + OUTPUTS * tree_bytes(outputs) + widest
        return total // (self.mesh.shape[FSDP] * self.mesh.shape[TENSOR])

    @property
    def total_bytes(self) -> int:
        return self.devices * (self.state + self.activations)

    def smaller_settings(self) -> Iterator[tuple[str, "MemoryEstimate"]]:
        """Yield settings that need less memory, each with its footprint: more microbatches first, then remat, too."""
        for again in (False, True):
            task, parts = self.task, 1 if again else 2
            if again:
                model = task.layout.config.replace(remat="full")
                task = dataclasses.replace(task, layout=dataclasses.replace(task.layout, config=model))
            while self.microbatch_rows % parts == 0:
                count = self.config.mesh.gradient_accumulation_steps * parts
                mesh = dataclasses.replace(self.config.mesh, gradient_accumulation_steps=count)
                config = dataclasses.replace(self.config, mesh=mesh)
                settings = ["--config.model.remat=full"] * again + [
                    f"--config.mesh.gradient_accumulation_steps={count}"
                ] * (parts > 1)
                yield " ".join(settings), dataclasses.replace(self, task=task, config=config)
                parts *= 2

    def require_fit(self) -> None:
        """Refuse a step that needs more memory than is free, and name settings that need less."""
        free = memory.free_bytes(self.device)
        if memory.is_check_disabled() or free is None or not self.config.steps:
            return  # before anything is traced
        needed = self.total_bytes
        if REFUSE_RATIO * needed <= free:
            return
        smaller = self.smaller_settings()
        fitting = (setting for setting, other in smaller if PROPOSE_RATIO * other.total_bytes <= free)
        setting = next(fitting, "")
        remedy = f"set {setting}" if setting else "train a smaller model"
        if not setting and self.microbatch_rows.bit_count() > 1:  # halving ends before one row
            remedy = "set a smaller --config.data.batch_size, or train a smaller model"
        rows, length = self.batch["input_ids"].shape
        raise BertJaxError(
            f"a step of {rows:,} rows of {length:,} tokens needs about {needed / 1e9:,.1f} GB of memory, and "
            f"{self.device.device_kind if self.device else 'this machine'} has {free / 1e9:,.1f} GB free; "
            f"{remedy}, or set the environment variable {memory.CHECK}=0 to try anyway"
        )


def tree_bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def estimate_memory(
    task: Task, data: BatchSource, config: RunConfig, mesh: Mesh, abstract: TrainState
) -> MemoryEstimate:
    """The footprint of a run's longest batch; `abstract` holds the shapes of its state on the mesh."""
    features = data.features(longest_step(data, config))
    shapes = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype) in features.items()}
    return MemoryEstimate(task, config, mesh, shapes, abstract)


def require_memory(
    task: Task, data: BatchSource, config: RunConfig, mesh: Mesh, abstract: TrainState
) -> None:
    """Refuse a run that needs more memory than is free; if plenty is free, nothing is read or traced."""
    tokens = jax.ShapeDtypeStruct((data.rows_per_step, data.row_length(longest_step(data, config))), "int32")
    smallest = MemoryEstimate(task, config, mesh, {"input_ids": tokens}, abstract)
    free = memory.free_bytes(smallest.device)
    if free is not None and AMPLE_RATIO * smallest.lower_bound > free:
        estimate_memory(task, data, config, mesh, abstract).require_fit()


def longest_step(data: BatchSource, config: RunConfig) -> int:
    """The step with the longest rows, which is either the first or the last one."""
    return max((0, max(config.steps - 1, 0)), key=data.row_length)
