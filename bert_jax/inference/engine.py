"""Engines, which compute what a model is asked for: one file each in engines/, found by its name."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from bert_jax.core.config import check_flag
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.registry import Registry
from bert_jax.hub.layout import Layout
from bert_jax.hub.local_directory import resolve_directory
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.onnx_files import read_source_fingerprint
from bert_jax.inference.batching import BatchShapes
from bert_jax.inference.computations import ROW_FOR_EACH, Computation
from bert_jax.text.tokenizer import Tokenizer

AUTO = "auto"  # the usual engine of the model's family, or of the file that it was exported to
ONNX_ENGINES = "onnxruntime", "openvino"  # which are named like the packages
ENGINES = Registry("bert_jax.inference.engines", "engine", "Engine")


class Engine(Protocol):
    """The weights of one model, on the device that computes with them."""

    name: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]]  # the types of number that it can compute in
    dtype: str  # that of the matrix products
    # The engine of all adapters of which this is the one in a slot; None if it computes alone.
    bank: Any
    slot: int
    shapes: BatchShapes
    shares_scale: bool  # of activations, among all texts of a batch

    @classmethod
    def open_directory(cls, path, dtype: str, **settings: Any) -> ModelDirectory:
        """Open a model directory to be computed so; `settings` are attention and remat."""

    @classmethod
    def from_directory(cls, directory: ModelDirectory) -> Self: ...

    @property
    def params(self) -> dict:
        """The parameters of the model's Flax module."""

    def module_params(self, name: str) -> dict:
        """Return the parameters of a module that is neither the encoder nor a head."""

    def write_model(self, directory: Path, layout: Layout, tokenizer: Tokenizer | None) -> None:
        """Write the files of the model into a directory."""

    def compiling(self, computation: Computation, batches: Sequence[dict]) -> AbstractContextManager:
        """Compile what these batches need in other threads, while this one computes them in the context."""

    def start(self, computation: Computation, batch: dict) -> Any:
        """Begin to compute a batch; a device may go on while the host does something else."""

    def read(self, started: Any) -> Any:
        """Return the outputs of a batch as an array, or several, with a row for each row of the batch."""


def shapes_for(engine: Engine, wanted: Computation) -> BatchShapes:
    """Return the shapes of an engine's batches for a computation."""
    return replace(engine.shapes, shared=0) if isinstance(wanted, ROW_FOR_EACH) else engine.shapes


def open_engine(directory: ModelDirectory) -> Engine:
    """Return the engine of an open directory."""
    engine = ENGINES[directory.engine].from_directory(directory)
    if directory.batch_invariant:
        engine.shapes = engine.shapes.batch_invariant(one_row=engine.shares_scale)
    return engine


def open_directory(
    path, engine: str = AUTO, dtype: str = "float32", attention: str = "auto", remat: str = "none",
    batch_invariant: bool = False,
) -> ModelDirectory:  # fmt: skip
    """Open a model directory, which remembers how it is to be computed. One that is open is returned as it is."""
    if isinstance(path, ModelDirectory):
        return path
    check_engine(engine)
    check_flag(batch_invariant, "batch_invariant")
    if engine == AUTO and (exported := onnx_engine(resolve_directory(path), dtype)):
        engine = exported
    elif engine == AUTO:
        path = ModelDirectory.open(path)
        engine = "numpy" if path.layout.is_static else "jax"
    chosen = ENGINES[engine]
    if not isinstance(dtype, str) or dtype not in chosen.dtypes:
        raise BertJaxError(
            f'the engine {engine} computes in {", ".join(chosen.dtypes)}, not in "{dtype!s:.40}"'
        )
    directory = chosen.open_directory(path, dtype, attention=attention, remat=remat)
    return replace(directory, engine=engine, batch_invariant=batch_invariant)


def onnx_engine(directory: Path, dtype: str) -> str | None:
    """Return the first installed engine that computes in this type of number, if a directory holds an ONNX file that
    was exported here, and no other weights."""
    if read_source_fingerprint(directory) is None:
        return None
    return next((name for name in installed_onnx_engines() if dtype in ENGINES[name].dtypes), None)


def installed_onnx_engines() -> list[str]:
    return [name for name in ONNX_ENGINES if find_spec(name)]


def check_engine(name: object) -> None:
    """Refuse what is no name of an engine; none is imported."""
    if not isinstance(name, str):
        raise BertJaxError(f"engine must be a name, not {name!r:.60}; {suggest_name('', ENGINES.names())}")
    if name != AUTO:
        ENGINES.check(name)
