"""The directories of adapters (LoRA and DoRA), in PEFT's files.

An adapter's directory names its base model. Opened, it is the base model with the adapter merged into the tensors as
they are read, so every use of a model directory is a use of an adapter's.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.hub.adapter_targets import (
    MAGNITUDE,
    A,
    AdapterConfig,
    B,
    find_targets,
    trained_modules,
)
from bert_jax.hub.layout import HEAD_KEYS, Layout
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.hub.tensors import Tensors, open_safetensors, weight_files
from bert_jax.hub.weights import read_weight
from bert_jax.models.heads import HEADS

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # of all tensor names
EMBEDDING_A, EMBEDDING_B, BIAS_B = ".lora_embedding_A", ".lora_embedding_B", ".lora_B.bias"
# Keys that change what is computed.
UNSUPPORTED = (
    "alora_invocation_tokens", "arrow_config", "kasa_config", "layer_replication", "megatron_config",
    "monteclora_config", "target_parameters", "trainable_token_indices", "use_bdlora", "use_qalora", "velora_config",
)  # fmt: skip
PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # of init_lora_weights: W stays as it is
# PEFT's task_type -> the head, if it is a part of the adapter.
TASK_HEADS = {"SEQ_CLS": "classify", "TOKEN_CLS": "tag", "QUESTION_ANS": "answer"}


class PeftConfig(TypedDict, total=False):
    """The keys of adapter_config.json that are read; the others do not change what is computed."""

    peft_type: str
    base_model_name_or_path: str | None
    task_type: str | None
    r: int
    lora_alpha: float
    use_rslora: bool | None
    use_dora: bool | None
    rank_pattern: dict[str, int] | None
    alpha_pattern: dict[str, float] | None


class LowRank(NamedTuple):
    """What an adapter adds to a kernel of the layers: for all blocks, as `AdaptedKernel` has it, its scale in `b`."""

    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter's directory that is open."""

    path: Path
    config: PeftConfig
    tensors: Tensors  # without PREFIX

    @property
    def where(self) -> Path:
        return self.path / CONFIG

    @property
    def base(self) -> str:
        """The name of the base model."""
        if base := self.config.get("base_model_name_or_path"):
            return base
        raise BertJaxError(
            f"{self.where} names no base model; name it, --adapter {self.path} beside the base"
        )

    @property
    def architecture(self) -> str:
        """The ending of the class that the adapter was trained with, if its type of task says it."""
        head = TASK_HEADS.get(str(self.config.get("task_type")))
        return HEADS[head].architecture if head else ""

    def low_rank_params(self, layout: Layout, predicts: bool) -> dict[str, LowRank] | None:
        """Return the products that the adapter adds to kernels of the layers, by the kernels' paths.

        None if it changes more than that and a head that predicts. `layout` is that of the model with it.
        """
        own = self.tensors.renamed(lambda name: (name.removeprefix(f"{layout.family.prefix}."),))
        left, shapes, by_path = set(own), layout.shapes(), dict[str, LowRank]()
        for target in find_targets(layout, (), shapes):
            names = [[name.format(i=i) for name in target.modules] for i in range(target.groups)]
            left -= {name + end for layer in names for name in layer for end in (A, B)}
            ranks = [own.shapes[name + A][0] for layer in names for name in layer if name + A in own]
            if not ranks:
                continue
            a = np.zeros((target.groups, target.inputs, len(target.modules), max(ranks)), np.float32)
            b = np.zeros((target.groups, len(target.modules), max(ranks), len(target.order)), np.float32)
            for i, layer in enumerate(names):
                for number, name in enumerate(layer):
                    if name + A in own:
                        down, up = self.read(own, name + A), self.read(own, name + B)
                        a[i, :, number, : len(down)] = down.T
                        b[i, number, : len(down)] = self.scale(name, len(down)) * up.T[:, target.order]
            by_path[target.path] = LowRank(a, b)
        parts = layout.parameter_mappings(prefixed=False)
        heads = {
            name
            for part in parts
            if not part.path.startswith("encoder/")
            for name in part.all_tensor_names(layout.config.groups)
        }
        # Heads that predict are computed for each row; distances are projected for all rows together.
        projects_distances = layout.config.block == "disentangled"
        is_mixable = left <= heads and (not left or predicts) and not projects_distances
        return by_path if is_mixable and not self.config.get("use_dora") else None

    def complete_config(self, base: Layout) -> dict:
        """Return the content of config.json for the base model with the adapter, which has no such file of its own."""
        published = dict(base.hf_config)
        if not self.architecture:
            return published
        published["architectures"] = [base.family.class_name + self.architecture]
        head = TASK_HEADS[str(self.config.get("task_type"))]
        last = next(part for part in base.family.heads[head] if part.path == f"{head}/dense/kernel")
        labels, rows = published.get("id2label"), self.tensors.shapes.get(last.tensor_names[0], (0,))[0]
        if HEADS[head].labels and rows and (not labels or len(labels) != rows):
            # PEFT does not keep the names of the labels.
            published = {key: value for key, value in published.items() if key not in HEAD_KEYS}
            published["num_labels"] = rows
        return published

    def scale(self, module: str, rank: int) -> float:
        """Return the factor of the adapter of a module."""
        expected = self.look_up("rank_pattern", module, self.config.get("r", 8))
        if rank != expected:
            raise BertJaxError(
                f"{self.path}: the adapter of {module} has rank {rank} in {WEIGHTS} and {expected} in {CONFIG}; copy "
                "both files again from their source"
            )
        alpha = self.look_up("alpha_pattern", module, self.config.get("lora_alpha", 8))
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def look_up(self, key: str, module: str, default: float) -> float:
        """Return the value of the first pattern that matches the module's name, as PEFT matches it."""
        patterns: Any = self.config.get(key) or {}
        for pattern, value in patterns.items():
            try:
                if re.fullmatch(rf"(.*\.)?({pattern})", module):
                    return value
            except re.error as error:
                raise BertJaxError(
                    f"{self.where}: {key} has a pattern that is not a regular expression: {error}"
                ) from None
        return default

    def merge_into(self, base: Tensors, layout: Layout, heads: tuple[str, ...]) -> Tensors:
        """Return the tensors of the base model with the adapter in them, which is computed as they are read.

        `layout` is that of the base. If the adapter was trained with `heads`, the base's other heads are left out.
        """
        family = layout.family
        own = family.modernize_tensors(self.tensors)
        own = own.renamed(lambda name: (name.removeprefix(f"{family.prefix}."),))
        names = {name.removeprefix(f"{family.prefix}."): name for name in base}
        prefix = f"{family.prefix}." * any(name.startswith(f"{family.prefix}.") for name in base)
        encoder = {name.removeprefix(f"{family.prefix}.") for name in self.tensors if name not in own}
        others = set[str]()
        if heads:
            others = head_names(layout, set(family.heads) - set(heads)) - head_names(layout, heads)
            if not any(HEADS[head].pooler for head in heads):
                others |= {name for prefixed in (False, True) for name in family.pooler_names(prefixed)}
        shapes = {name: shape for name, shape in base.shapes.items() if name not in others}
        reads: dict[str, Callable[[], np.ndarray]] = {
            name: partial(base.__getitem__, name) for name in shapes
        }

        def base_name(module: str, parameter: str) -> str:
            if name := names.get(f"{module}.{parameter}"):
                return name
            raise BertJaxError(
                f"{self.path} has an adapter for {module}.{parameter}, which its base model lacks, so the outputs "
                "would be random; name the model that it was trained on as the base"
            )

        for name, shape in own.shapes.items():
            if name.endswith((B, EMBEDDING_B, MAGNITUDE)):
                continue
            if name.endswith((A, EMBEDDING_A)):
                module = name.removesuffix(A).removesuffix(EMBEDDING_A)
                target = base_name(module, "weight")
                reads[target] = self.merged_weight(own, module, base, target)
            elif name.endswith(BIAS_B):
                module = name.removesuffix(BIAS_B)
                bias = base_name(module, "bias")
                reads[bias] = partial(self.add_bias, own, module, reads[bias])
            else:  # a module that was trained whole
                plain = name.replace(".base_layer.", ".")
                replaced = names.get(plain) or prefix * (name in encoder) + plain
                shapes[replaced], reads[replaced] = shape, partial(own.__getitem__, name)
        return Tensors(shapes, reads)

    def merged_weight(
        self, own: Tensors, module: str, base: Tensors, target: str
    ) -> Callable[[], np.ndarray]:
        """Check the shapes of a module's adapter; return the function that reads its weight with the adapter in it."""
        is_embedding = module + EMBEDDING_A in own
        a, b = (
            (module + (EMBEDDING_A if is_embedding else A)),
            (module + (EMBEDDING_B if is_embedding else B)),
        )
        rank, inputs = own.shapes[a] if len(own.shapes[a]) == 2 else (0, 0)
        weight = base.shapes[target]
        wanted = (weight[::-1] if is_embedding else weight) if len(weight) == 2 else (0, 0)
        changed = (own.shapes.get(b, (0, 0))[0], inputs)
        if not rank or own.shapes.get(b) != (wanted[0], rank) or inputs != wanted[1]:
            raise BertJaxError(
                f"{self.path}: the adapter of {module} changes a weight of shape {list(changed)}, but that of the base "
                f"model has {list(wanted)}; name the model that it was trained on as the base"
            )
        if is_embedding and module + MAGNITUDE in own:
            raise BertJaxError(
                f"{self.where}: use_dora on embeddings is not supported; merge the adapter with PEFT"
            )
        scale = self.scale(module, rank)

        def read() -> np.ndarray:
            change = scale * (self.read(own, b) @ self.read(own, a))
            whole = read_weight(base, target, self.path) + (change.T if is_embedding else change)
            if not self.config.get("use_dora") or is_embedding:
                return whole
            norms = np.linalg.norm(whole, axis=1)
            return whole * (self.read(own, module + MAGNITUDE) / norms)[:, None]

        return read

    def add_bias(self, own: Tensors, module: str, read: Callable[[], np.ndarray]) -> np.ndarray:
        rank = own.shapes[module + A][0]
        return read() + self.scale(module, rank) * self.read(own, module + BIAS_B)

    def read(self, own: Tensors, name: str) -> np.ndarray:
        if name not in own:
            raise BertJaxError(f"{self.path / WEIGHTS} lacks {name}; copy it again from its source")
        return read_weight(own, name, self.path)


def head_names(layout: Layout, heads: Iterable[str]) -> set[str]:
    """Return the published names of the parameters of heads."""
    parts = [part for head in heads for part in layout.family.head_mappings(head, layout.config)]
    return {name for part in parts for name in part.tensor_names}


def open_adapter(directory: Path) -> Adapter | None:
    """Open the adapter in a directory; None if it holds none, or a whole model. No numbers are read."""
    where = directory / CONFIG
    if not where.is_file() or weight_files(directory):
        return None
    content = read_json(where)
    config = read_json(where, PeftConfig)
    if (peft_type := config.get("peft_type")) != "LORA":
        raise BertJaxError(f'{where}: adapters of type "{peft_type!s:.40}" are not supported, only LORA')
    for key in UNSUPPORTED:
        if content.get(key):
            raise BertJaxError(
                f"{where}: {key} is not supported; merge the adapter with PEFT and open the result"
            )
    if content.get("init_lora_weights") not in PLAIN_STARTS:
        raise BertJaxError(
            f"{where}: init_lora_weights = {content['init_lora_weights']!r:.40} changes the base model, which is not "
            "supported; merge the adapter with PEFT and open the result"
        )
    if not (directory / WEIGHTS).is_file():
        raise BertJaxError(
            f"{directory} has {CONFIG} but no {WEIGHTS}; copy it there from the adapter's source"
        )
    tensors = open_safetensors(directory / WEIGHTS)
    return Adapter(directory, config, tensors.renamed(lambda name: (name.removeprefix(PREFIX),)))


@dataclass(frozen=True, eq=False)
class TrainedAdapter:
    """The adapters of a run, to be saved."""

    config: AdapterConfig
    base: str  # the model directory that the run started from
    params: Mapping[str, Mapping[str, np.ndarray]]  # by the names of targets
    shapes: Mapping[str, tuple[int, ...]]  # of all parameters of the model

    def to_tensors(self, layout: Layout, whole: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the tensors of the file, given those of the model, `whole`, by their published names."""
        prefix = f"{layout.family.prefix}." * bool(layout.heads)
        tensors: dict[str, np.ndarray] = {}
        for target in find_targets(layout, self.config.target_modules, self.shapes):
            own = target.to_tensors(self.params[target.name])
            tensors |= {PREFIX + prefix + name: array for name, array in own.items()}
        kept = self.saved_names(layout) & set(whole)
        return tensors | {PREFIX + name: whole[name] for name in sorted(kept)}

    def saved_names(self, layout: Layout) -> set[str]:
        """Return the published names of the parameters that were trained whole."""
        modules = set(trained_modules(layout.module_names)) - {PROJECTION}
        parts = layout.parameter_mappings(prefixed=bool(layout.heads))
        return {
            name
            for part in parts
            if part.path.split("/")[0] in modules
            for name in part.all_tensor_names(layout.config.groups)
        }

    def write_config(self, directory: Path, layout: Layout) -> None:
        c, head = self.config, layout.heads[-1] if layout.heads else ""
        targets = find_targets(layout, c.target_modules, self.shapes)
        names = [
            name.format(i=i) for target in targets for name in target.modules for i in range(target.groups)
        ]
        task_types = {head: name for name, head in TASK_HEADS.items()}
        base = Path(self.base)
        content = {
            "peft_type": "LORA",
            "base_model_name_or_path": str(base.resolve()) if base.exists() else self.base,
            "task_type": task_types.get(head) if layout.heads else "FEATURE_EXTRACTION",
            "inference_mode": True,
            "r": c.rank,
            "lora_alpha": c.alpha,
            "lora_dropout": c.dropout,
            "use_rslora": c.use_rslora,
            "use_dora": c.use_dora,
            "bias": "none",
            "fan_in_fan_out": False,
            "target_modules": sorted(names),
            "modules_to_save": self.modules_to_save(layout) or None,
        }
        write_json(directory / CONFIG, content)

    def modules_to_save(self, layout: Layout) -> list[str]:
        """Return the shortest published names under which every parameter was trained whole."""
        saved = self.saved_names(layout)
        parts = layout.parameter_mappings(prefixed=bool(layout.heads))
        others = {name for part in parts for name in part.all_tensor_names(layout.config.groups)} - saved
        prefix, modules = f"{layout.family.prefix}.", set()
        for name in saved:
            levels = name.removeprefix(prefix).split(".")[:-1]
            for count in range(1, len(levels) + 1):
                module = ".".join(levels[:count])
                whole = [f"{module}.", f"{prefix}{module}."]
                if not any(other.startswith(tuple(whole)) for other in others):
                    modules.add(module)
                    break
        return sorted(modules)
