"""Which kernels have adapters, and the form of those: ours, with several layers of PEFT's in one kernel, and PEFT's."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from bert_jax.core.config import NonNegative, Range
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.hub.parameter_mapping import ParameterMapping

A, B, MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
# Pre-training heads stay frozen where the base model has them: the masked LM's reads the word embeddings.
FROZEN_MODULES = ("encoder", "mlm")


@dataclass(frozen=True)
class AdapterConfig:
    """How adapters are trained, in PEFT's words."""

    rank: NonNegative = (
        0  # rank of the adapters (LoRA), the only trained parameters beside the head; 0: no adapters
    )
    alpha: Annotated[float, Range(0, 1e6)] = 16.0  # what an adapter adds is multiplied by alpha / rank
    # layers that have adapters, by published names or regular expressions, such as ("query", "value"); (): all linear
    # layers of the encoder's layers
    target_modules: tuple[str, ...] = ()
    dropout: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.0  # dropout of what adapters read
    use_rslora: bool = False  # multiply by alpha / sqrt(rank) instead
    use_dora: bool = False  # also train the norm of each column of a kernel (DoRA)

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.use_rslora else self.rank)


@dataclass(frozen=True, eq=False)
class AdapterTarget:
    """A kernel of the layers, of which some blocks of outputs have adapters: those are published as layers."""

    path: str  # encoder/layers/attention/qkv/kernel
    modules: tuple[
        str, ...
    ]  # the published names of the blocks, without the family's prefix, with {i} for the layer
    blocks: tuple[int, ...]
    num_blocks: int
    groups: int
    inputs: int
    order: np.ndarray  # [width of a block], the published output of each of our outputs

    @property
    def name(self) -> str:
        """Its name among the parameters of adapters, which no rule for parameters of layers may match."""
        return self.path.removesuffix("/kernel").replace("/", ".")

    def shapes(self, config: AdapterConfig) -> dict[str, tuple[int, ...]]:
        blocks, width = len(self.blocks), len(self.order)
        shapes = {
            "a": (self.groups, self.inputs, blocks, config.rank),
            "b": (self.groups, blocks, config.rank, width),
        }
        return shapes | ({"magnitude": (self.groups, blocks, width)} if config.use_dora else {})

    def to_tensors(self, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Convert the parameters of its adapters to PEFT's names and shapes."""
        tensors = {}
        back = np.argsort(self.order)
        for layer in range(self.groups):
            for number, module in enumerate(name.format(i=layer) for name in self.modules):
                tensors[module + A] = params["a"][layer, :, number].T
                tensors[module + B] = params["b"][layer, number].T[back]
                if "magnitude" in params:
                    tensors[module + MAGNITUDE] = params["magnitude"][layer, number][back]
        return {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}


def find_targets(
    layout: Layout, patterns: Iterable[str], shapes: Mapping[str, tuple[int, ...]]
) -> list[AdapterTarget]:
    """Return the kernels of the layers whose published names match a pattern, as PEFT matches them; (): all.

    `shapes` has the shape of each parameter by its path.
    """
    targets, patterns = [], tuple(patterns)
    for part in layout.parameter_mappings(prefixed=False):
        if part.path.startswith("encoder/layers/") and part.path.endswith("/kernel"):
            modules = [name.removesuffix(".weight") for name in part.tensor_names]
            blocks = tuple(i for i, name in enumerate(modules) if not patterns or matches(name, patterns))
            if blocks:
                targets.append(make_target(part, modules, blocks, shapes[part.path]))
    if not targets:
        known = ", ".join(sorted({name.split(".")[-1] for name in linear_layers(layout)}))
        raise BertJaxError(
            f"adapter.target_modules={patterns} matches no layer; the encoder's linear layers are {known}"
        )
    return targets


def linear_layers(layout: Layout) -> list[str]:
    parts = layout.parameter_mappings(prefixed=False)
    kernels = [
        part for part in parts if part.path.startswith("encoder/layers/") and part.path.endswith("/kernel")
    ]
    return [name.removesuffix(".weight") for part in kernels for name in part.tensor_names]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """
    >>> matches("encoder.layer.{i}.attention.self.query", ["query", "value"])
    True
    """
    try:
        return any(re.fullmatch(rf"(.*\.)?({pattern})", name.replace("{i}", "0")) for pattern in patterns)
    except re.error as error:
        raise BertJaxError(f"adapter.target_modules is not a regular expression: {error}") from None


def make_target(
    part: ParameterMapping, modules: list[str], blocks: tuple[int, ...], shape: tuple[int, ...]
) -> AdapterTarget:
    groups, *kernel = shape
    published = part.tensor_shapes(shape)
    (_, inputs) = published[0]
    starts = np.cumsum([0, *(rows for rows, _ in published)])
    # The published output of each of ours: read a kernel whose columns are filled with their numbers.
    numbers = [
        np.broadcast_to(np.arange(start, start + rows)[:, None], (rows, columns))
        for start, (rows, columns) in zip(starts[:-1], published, strict=True)
    ]
    order = part.join(numbers).reshape(inputs, -1)[0].reshape(len(modules), -1)
    return AdapterTarget(
        part.path, tuple(modules[i] for i in blocks), blocks, len(modules), groups, inputs,
        order[0] - order[0].min(),
    )  # fmt: skip


def trained_modules(names: Iterable[str]) -> list[str]:
    """Return the modules of a model that are trained whole beside its adapters, and saved with them."""
    return [name for name in names if name not in FROZEN_MODULES]
