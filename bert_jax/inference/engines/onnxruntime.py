"""The engine that computes with the ONNX file of a directory, on CPUs. Nothing of it imports JAX."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import singledispatchmethod
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar, Self

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.hashes import FILE, find_damaged_files, read_hashes, write_hashes
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.onnx_files import (
    ANSWER_LOGITS,
    EMBEDDING,
    HIDDEN_STATES,
    LOGITS,
    TOKEN_VECTORS,
    OnnxFile,
    find_onnx_file,
)
from bert_jax.hub.sentence_transformers import PROJECTION, write_embedder
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS
from bert_jax.inference.batching import CPU_TOKENS, BatchShapes, split_texts
from bert_jax.inference.computations import (
    POOLER,
    Computation,
    HeadLogits,
    HiddenStates,
    LogLikelihoods,
    MaskFillings,
    PooledStates,
    QueryTokenVectors,
    SparseVectors,
    TokenVectors,
)
from bert_jax.inference.onnx_session import OnnxSession, require_packages
from bert_jax.models.pooling_weights import POOLING_WEIGHTS
from bert_jax.text.tokenizer import Tokenizer

UNUSED = {"attention": "auto", "remat": "none"}  # settings of programs, which a file has none of
Batch = dict[str, np.ndarray]
# Computations whose result an ONNX file has as one of its outputs.
OUTPUTS: dict[type, str] = {
    HiddenStates: HIDDEN_STATES,
    SparseVectors: EMBEDDING,
    TokenVectors: TOKEN_VECTORS,
}
ACTIVATIONS: dict[str, Callable] = {"none": lambda vectors: vectors, "tanh": np.tanh}  # of a projection


class OnnxRuntimeEngine:
    name: ClassVar = "onnxruntime"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "int8")
    bank: Any = None
    slot: int = 0
    shapes = BatchShapes(CPU_TOKENS, overhead=24)
    open_session: ClassVar[Any] = staticmethod(lambda file: OnnxSession(file.path))
    static_only: ClassVar = False  # whether int8 needs a file that holds the ranges of activations

    def __init__(self, file: OnnxFile, extra_inputs: dict[str, dict[str, np.ndarray]]):
        self.session, self.dtype, self.extra_inputs = self.open_session(file), file.dtype, extra_inputs
        self.shares_scale = file.dtype == "int8" and not file.is_static

    @classmethod
    def open_directory(cls, path, dtype: str, **settings: Any) -> ModelDirectory:
        require_packages(f"the engine {cls.name}", cls.name)
        refuse_settings(settings)
        directory = ModelDirectory.open(path, has_weights=False)
        return replace(directory, onnx_file=find_onnx_file(directory.path, dtype, cls.static_only))

    @classmethod
    def from_directory(cls, directory: ModelDirectory) -> Self:
        layout, file = directory.layout, directory.onnx_file
        assert file is not None  # `open_directory` has found it
        refuse_damage(directory.path, file.path)
        extra_inputs: dict[str, dict[str, np.ndarray]] = {PROJECTION: {}, QUERY_WEIGHTS: {}}
        for part in layout.parameter_mappings(True):
            module, *_, name = part.path.split("/")
            if module in extra_inputs:
                extra_inputs[module][name] = directory.read_parameter(part, 1)
        return cls(file, extra_inputs)

    @property
    def params(self) -> dict:
        raise BertJaxError(
            f"the weights of {self.session.path} are not read; load the directory that it was exported from"
        )

    def module_params(self, name: str) -> dict:
        return self.extra_inputs[name]

    def write_model(self, directory: Path, layout: Layout, tokenizer: Tokenizer | None) -> None:
        source = self.session.path.parents[1]
        if not source.is_dir():
            raise BertJaxError(f"the model cannot be saved: its files are no longer in {source}")
        copytree(source, directory, dirs_exist_ok=True)
        if layout.embedder:  # its pooling may be another one now
            write_embedder(directory, layout.embedder, layout.config.hidden_size)
        write_hashes(directory)

    def compiling(self, computation: Computation, batches: Sequence[Batch]) -> AbstractContextManager:
        return nullcontext()

    def read(self, started: Any) -> Any:
        return started

    def run(self, batch: Batch, *outputs: str) -> list[np.ndarray]:
        if missing := [name for name in outputs if name not in self.session.outputs]:
            raise BertJaxError(
                f"{self.session.path} gives {', '.join(self.session.outputs)}, but {missing[0]} is needed; use the "
                "engine jax"
            )
        return list(self.session.run(batch, outputs).values())

    @singledispatchmethod
    def start(self, computation: Computation, batch: Batch) -> Any:
        """Return the outputs of a computation; each of the methods below computes one that the file does not have."""
        if output := OUTPUTS.get(type(computation)):
            return self.run(batch, output)[0]
        raise BertJaxError(
            f"the engine {self.name} computes the states of the last layer alone, and no attention weights; use the "
            "engine jax"
        )

    @start.register
    def head_logits(self, wanted: HeadLogits, batch: Batch) -> Any:
        rows = split_texts(batch)
        parts = ANSWER_LOGITS if ANSWER_LOGITS[0] in self.session.outputs else (LOGITS,)
        outputs = self.run(rows, *parts, *[HIDDEN_STATES] * wanted.with_vectors)
        logits = outputs[0] if len(parts) == 1 else np.stack(outputs[: len(parts)], axis=-1)
        if not wanted.with_vectors:
            return logits
        # The vector of a pair is the mean over both texts, even if they are read separately.
        count, states = len(logits), outputs[-1]
        states, mask = states.reshape(count, -1, states.shape[-1]), rows["attention_mask"].reshape(count, -1)
        return logits, normalized(pooled(states, mask, "mean"))

    @start.register
    def pooled_states(self, wanted: PooledStates, batch: Batch) -> Any:
        if wanted.pooling == POOLER:
            raise BertJaxError(f'pooling="{POOLER}" is not computed by the engine {self.name}; use jax')
        vectors = pooled(self.run(batch, HIDDEN_STATES)[0], batch["attention_mask"], wanted.pooling)
        return finish_vectors(vectors, wanted, self.extra_inputs[PROJECTION])

    @start.register
    def query_token_vectors(self, wanted: QueryTokenVectors, batch: Batch) -> Any:
        attended = np.arange(batch["input_ids"].shape[1]) < batch["attended"][:, None]
        return self.run(batch | {"attention_mask": attended}, TOKEN_VECTORS)[0]

    @start.register
    def mask_fillings(self, wanted: MaskFillings, batch: Batch) -> Any:
        likely = target_log_probabilities(self.run(batch, LOGITS)[0], batch)
        best = np.argsort(-likely, axis=-1, kind="stable")[..., : wanted.top]
        return np.exp(np.take_along_axis(likely, best, axis=-1)), best

    @start.register
    def log_likelihoods(self, wanted: LogLikelihoods, batch: Batch) -> Any:
        likely = target_log_probabilities(self.run(batch, LOGITS)[0], batch)
        return np.take_along_axis(likely, batch["targets"][..., None], axis=-1)[..., 0]


def refuse_settings(settings: dict[str, Any]) -> None:
    """Refuse settings of JAX's programs."""
    if changed := [key for key, value in settings.items() if value != UNUSED[key]]:
        raise BertJaxError(f"{changed[0]}={settings[changed[0]]!r} is for the engine jax; leave it out")


def refuse_damage(directory: Path, file: Path) -> None:
    """Raise if an ONNX file, or one of its weights, is not what was exported, but what was copied over it."""
    listed, name = read_hashes(directory) or {}, file.relative_to(directory).as_posix()
    own = {other: facts for other, facts in listed.items() if other.startswith(name)}
    if damage := next(find_damaged_files(directory, own), None):
        raise BertJaxError(
            f"{directory}: {damage}; export the model again, or delete {FILE} to skip the check"
        )


def target_log_probabilities(logits: np.ndarray, batch: Batch) -> np.ndarray:
    """Return those of every token at the target positions, [B, K, V], from the logits [B, L, V]."""
    logits = np.take_along_axis(logits, batch["target_positions"][..., None], axis=1)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def pooled(states: np.ndarray, attention_mask: np.ndarray, how: str) -> np.ndarray:
    """Pool the real tokens of hidden states [B, L, D] to one vector per row, [B, D]."""
    if how == "max":
        return np.where(attention_mask[..., None] > 0, states, np.finfo(np.float32).min).max(1)
    weights = POOLING_WEIGHTS[how](attention_mask.astype(np.float32))
    return (weights[:, None] @ states)[:, 0]


def finish_vectors(vectors: np.ndarray, wanted: PooledStates, dense: dict[str, np.ndarray]) -> np.ndarray:
    """Project pooled states [B, D] and normalize them, as wanted."""
    if wanted.projection:
        vectors = ACTIVATIONS[wanted.projection.activation](vectors @ dense["kernel"] + dense.get("bias", 0))
    return normalized(vectors) if wanted.normalize else vectors


def normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


Engine = OnnxRuntimeEngine
