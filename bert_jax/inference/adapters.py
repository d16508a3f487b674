"""Several adapters on one encoder: it is in memory once, and one batch holds texts for any of them.

What a batch cannot mix is opened as a model of its own: DoRA, changed biases or embeddings, shared projections of
distances, heads that compare vectors.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.hub.adapter import LowRank
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory, save_model
from bert_jax.inference.batching import BatchShapes
from bert_jax.inference.computations import Computation, HeadLogits, WithAdapters
from bert_jax.inference.encoder import Encoder, class_name_for
from bert_jax.inference.engines.jax import JaxEngine
from bert_jax.inference.model_classes import CLASSES
from bert_jax.inference.programs import Program, round_kernels, uses_unrolled_layers
from bert_jax.inference.row_predictor import RowPredictor
from bert_jax.inference.runner import TextPipeline, cut_labels, run_together
from bert_jax.inference.streaming import ordered_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.models.adapted_kernel import AdaptedKernel
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import find_kind
from bert_jax.text.tokenizer import Tokenizer

LEAST_SLOTS = 8  # programs depend on the number of slots, which doubles
RESTING = 600.0  # seconds before a slot is used again: a batch for its last adapter may wait to be computed


class AdapterBank(JaxEngine):
    """An encoder with a slot for each adapter; slot 0 is that of the base model, which has none."""

    def __init__(self, directory: ModelDirectory):
        super().__init__(directory.layout.config, directory.read_params())
        self.shapes = replace(self.shapes, shared=0)  # a row is computed with one adapter
        if directory.batch_invariant:
            self.shapes = self.shapes.batch_invariant()
        self.low_rank: dict[int, dict[str, LowRank]] = {}  # by slot
        self.heads: dict[int, tuple[str, dict]] = {}  # head and parameters, of slots with one that predicts
        # Slots, and the times from which on they may be used.
        self.slots, self.free = LEAST_SLOTS, deque((slot, 0.0) for slot in range(1, LEAST_SLOTS))
        self.stacked: dict[str, dict] = {}  # the parameters of programs by the head, "" without one
        self.changing = threading.RLock()  # held while these change, and while a batch is started with them
        if head := head_that_predicts(directory.layout):
            self.heads[0] = head, directory.read_head_params()

    def add(self, low_rank: dict[str, LowRank], head: str, head_params: dict) -> int:
        """Return the slot of a new adapter; its head is "" if it predicts nothing."""
        if not self.free or self.free[0][1] > time.monotonic():
            self.free.extendleft((slot, 0.0) for slot in reversed(range(self.slots, 2 * self.slots)))
            self.slots *= 2
        slot, _ = self.free.popleft()
        self.low_rank[slot] = low_rank
        self.heads.pop(slot, None)
        if head:
            self.heads[slot] = head, head_params
        return slot

    def remove(self, slot: int) -> None:
        """Free a slot. Its numbers stay until another adapter gets it, for batches that wait."""
        self.free.append((slot, time.monotonic() + RESTING))

    def stack(self) -> None:
        """Place the adapters of all slots on the device; then they are computed."""
        stacked = {"": self.rounded_params | {"encoder": self.encoder_with_adapters()}}
        for head in {head for head, _ in self.heads.values()}:
            modules = round_kernels(jax.device_put(self.stack_heads(head), self.replicated), self.dtype)
            stacked[head] = stacked[""] | {"modules": modules}
        with self.changing:
            self.stacked, self.programs = stacked, {}

    def encoder_with_adapters(self) -> dict:
        flat = flatten_dict(self.rounded_params["encoder"], sep="/")
        for path in {path for adapter in self.low_rank.values() for path in adapter}:
            own = {slot: adapter[path] for slot, adapter in self.low_rank.items() if path in adapter}
            first, rank = next(iter(own.values())), max(part.a.shape[-1] for part in own.values())
            groups, inputs, blocks, _ = first.a.shape
            width = first.b.shape[-1]
            # One product for all blocks of a kernel, with zeros between them, is faster than one for each.
            a = np.zeros((groups, self.slots, inputs, 1, blocks * rank), self.dtype)
            b = np.zeros((groups, self.slots, 1, blocks * rank, blocks * width), self.dtype)
            for slot, part in own.items():
                for n in range(blocks):
                    rows = slice(n * rank, n * rank + part.a.shape[-1])
                    a[:, slot, :, 0, rows] = part.a[:, :, n]
                    b[:, slot, 0, rows, n * width : (n + 1) * width] = part.b[:, n]
            name = path.removeprefix("encoder/")
            if uses_unrolled_layers():
                for i in range(groups):
                    of_layer = name.replace("layers/", f"layers_{i}/", 1)
                    flat[of_layer] = AdaptedKernel(
                        flat[of_layer], *jax.device_put((a[i], b[i]), self.replicated)
                    )
            else:
                flat[name] = AdaptedKernel(flat[name], *jax.device_put((a, b), self.replicated))
        return unflatten_dict(flat, sep="/")

    def stack_heads(self, head: str) -> dict:
        """Return the parameters of a head and below it, of all slots; labels that only others have get zeros."""
        own = {slot: flatten_dict(params) for slot, (name, params) in self.heads.items() if name == head}
        stacked = {}
        for name in next(iter(own.values())):
            shape = np.max([flat[name].shape for flat in own.values()], axis=0)
            stacked[name] = np.zeros((self.slots, *shape), np.float32)
            for slot, flat in own.items():
                corner: Any = (slot, *map(slice, flat[name].shape))
                stacked[name][corner] = flat[name]
        return unflatten_dict(stacked)

    def widen(self, computation: Computation) -> Computation:
        """Return the computation for rows of any adapters with the same head, whose labels are those of the one with
        the most."""
        if not isinstance(computation, HeadLogits):
            return WithAdapters(computation)
        kernel = self.stacked[computation.head]["modules"][computation.head]["dense"]["kernel"]
        labels = kernel.shape[-1] if HEADS[computation.head].labels else computation.labels
        return WithAdapters(replace(computation, labels=labels))

    def program(self, computation: Computation, batch: dict) -> Future[Program]:
        with self.changing:
            return super().program(computation, batch)

    def start(self, computation: Computation, batch: dict) -> Any:
        inner = computation.computation if isinstance(computation, WithAdapters) else computation
        with self.changing:  # what it was widened for may have changed
            return super().start(self.widen(inner), batch)

    def params_for(self, computation: Computation) -> dict:
        inner = computation.computation if isinstance(computation, WithAdapters) else computation
        return self.stacked[inner.head if isinstance(inner, HeadLogits) else ""]


def head_that_predicts(layout: Layout) -> str:
    return layout.heads[-1] if find_kind(layout) else ""


class AdapterEngine:
    """The engine of one adapter, which its bank computes with those of the others."""

    name: ClassVar = "jax"
    dtypes: ClassVar[tuple[str, ...]] = JaxEngine.dtypes

    def __init__(self, bank: AdapterBank, slot: int, directory: ModelDirectory):
        self.bank, self.slot, self.directory, self.dtype = bank, slot, directory, bank.dtype

    @property
    def shapes(self) -> BatchShapes:
        return self.bank.shapes

    @shapes.setter
    def shapes(self, shapes: BatchShapes) -> None:
        self.bank.shapes = shapes

    @property
    def params(self) -> dict:
        return self.directory.read_params()

    def write_model(self, directory: Path, layout: Layout, tokenizer: Tokenizer | None) -> None:
        save_model(directory, layout, self.params, tokenizer)

    def compiling(self, computation: Computation, batches: Sequence[dict]):
        return self.bank.compiling(self.bank.widen(computation), [self.with_slot(batch) for batch in batches])

    def with_slot(self, batch: dict) -> dict:
        return {"adapter": np.full(len(batch["input_ids"]), self.slot, np.int32)} | batch

    def start(self, computation: Computation, batch: dict) -> Any:
        return computation, self.bank.start(self.bank.widen(computation), self.with_slot(batch))

    def read(self, started: Any) -> Any:
        computation, outputs = started
        return cut_labels(computation, self.bank.read(outputs))


class AdapterModels(Mapping[str, Encoder]):
    """A model and adapters on it, each a model of the class for what it is, by name; the model itself is "".

    >>> models = bert_jax.load(DIR, adapters={})
    >>> list(models), len(models.predict(["the cat", "cats"], ["", ""]))
    ([''], 2)
    """

    def __init__(self, base: ModelDirectory, adapters: Mapping[str, Any]):
        if not isinstance(adapters, Mapping):
            raise BertJaxError(f"adapters must be directories by name, not {adapters!r:.60}")
        self.directory, self.bank = base, AdapterBank(base)
        compares = any(HEADS[head].compares for head in base.layout.heads)
        self.models = {"": self.open_model(base, None if compares else 0)}
        for name, directory in adapters.items():
            self.open_adapter(name, directory)
        self.bank.stack()

    def __getitem__(self, name: str) -> Encoder:
        check_name(name, self.models, "adapter")
        return self.models[name]

    def __contains__(self, name: object) -> bool:
        return name in self.models  # Mapping's own expects a KeyError

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def add(self, name: str, directory: Any) -> None:
        """Open the adapter in a directory. The others can be used meanwhile."""
        self.open_adapter(name, directory)
        self.bank.stack()

    def open_adapter(self, name: str, directory: Any) -> None:
        if not isinstance(name, str) or not name:
            raise BertJaxError(f"an adapter needs a name, not {name!r:.60}")
        if name in self.models:
            raise BertJaxError(f'two adapters are called "{name}"; give one of them another name')
        opened = ModelDirectory.open(directory, base=self.directory)
        assert opened.adapter
        head = head_that_predicts(opened.layout)
        low_rank = opened.adapter.low_rank_params(opened.layout, bool(head))
        if low_rank is None or (head and HEADS[head].compares):
            self.models[name] = self.open_model(opened, None)
        else:
            slot = self.bank.add(low_rank, head, opened.read_head_params() if head else {})
            self.models[name] = self.open_model(opened, slot)

    def remove(self, name: str) -> None:
        """Close an adapter."""
        engine = self[name].engine
        if not name:
            raise BertJaxError('"" is the model itself, which its adapters need')
        del self.models[name]
        if isinstance(engine, AdapterEngine):
            self.bank.remove(engine.slot)

    def open_model(self, directory: ModelDirectory, slot: int | None) -> Encoder:
        engine: Any = None if slot is None else AdapterEngine(self.bank, slot, directory)
        return CLASSES[class_name_for(directory.layout)].from_directory(directory, engine=engine)

    def predict(self, texts: Sequence, names: Sequence[str]) -> list:
        """Return for each text what the adapter with the name at its place gives, computed in common batches: a
        vector of an embedder, or else a prediction as `bert-jax predict` writes it."""
        texts, names = list(ordered_texts(texts)), list(ordered_texts(names))
        if len(texts) != len(names):
            raise BertJaxError(f"there are {len(texts):,} texts, but {len(names):,} names of adapters")
        positions = defaultdict[str, list[int]](list)
        for position, name in enumerate(names):
            check_name(name, self.models, "adapter")
            positions[name].append(position)
        readers = {name: OutputReader(self[name]) for name in positions}
        inputs = {
            name: reader.pipeline.preprocess([texts[i] for i in positions[name]])
            for name, reader in readers.items()
        }
        outputs = run_together(
            [(readers[name].pipeline, given.rows, given.extra_inputs or {}) for name, given in inputs.items()]
        )
        results: list = [None] * len(texts)
        for (name, given), own in zip(inputs.items(), outputs, strict=True):
            for position, result in zip(positions[name], readers[name].read(given, own), strict=True):
                results[position] = result
        return results


class OutputReader:
    """Reads what a model computes for texts: a vector, or a prediction as a record."""

    def __init__(self, model: Encoder):
        self.predictor = RowPredictor(model) if find_kind(model.layout) else None
        self.pipeline: TextPipeline = (
            OutcomePipeline(model, self.predictor.kind) if self.predictor else EmbeddingPipeline(model)
        )

    def read(self, inputs: Any, outputs: list) -> Iterator[Any]:
        self.pipeline.truncated.count(inputs.first_rows)
        results = self.pipeline.postprocess(inputs, outputs)
        return map(self.predictor.make_prediction, results) if self.predictor else iter(results)
