"""The engine that computes with compiled JAX programs, on every device that JAX knows."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import jax

from bert_jax.core.compilation_cache import avoid_missing_tpu, enable_compilation_cache
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory, save_model
from bert_jax.inference.batching import ACCELERATOR_TOKENS, CPU_TOKENS, BatchShapes
from bert_jax.inference.computations import Computation
from bert_jax.inference.programs import (
    Program,
    Shapes,
    compile_program,
    place_on_device,
    restack_layers,
    round_kernels,
)
from bert_jax.models.encoder_config import DTYPES, EncoderConfig
from bert_jax.text.tokenizer import Tokenizer

# A CPU pays for every token of padding; an accelerator compiles each program for seconds.
CPU_SHAPES = BatchShapes(
    CPU_TOKENS, (*range(8, 64, 4), *range(64, 128, 8), *range(128, 256, 16), *range(256, 513, 32))
)
ACCELERATOR_SHAPES = BatchShapes(
    ACCELERATOR_TOKENS, (*range(16, 128, 16), *range(128, 256, 32), *range(256, 513, 64))
)


class JaxEngine:
    name: ClassVar = "jax"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    bank: Any = None
    slot: int = 0

    def __init__(self, config: EncoderConfig, params: dict):
        self.config, self.dtype = config, config.computed_dtype
        self.shapes = CPU_SHAPES if jax.default_backend() == "cpu" else ACCELERATOR_SHAPES
        self.device_params = place_on_device(params)
        self.rounded_params = round_kernels(self.device_params, self.dtype)
        self.programs: dict[tuple, Future[Program]] = {}

    @classmethod
    def open_directory(cls, path, dtype: str, **settings: Any) -> ModelDirectory:
        return ModelDirectory.open(path, dtype=dtype, **settings)

    @classmethod
    def from_directory(cls, directory: ModelDirectory) -> Self:
        avoid_missing_tpu()
        enable_compilation_cache()
        return cls(directory.layout.config, directory.read_params())

    @property
    def params(self) -> dict:
        return restack_layers(self.device_params)

    def write_model(self, directory: Path, layout: Layout, tokenizer: Tokenizer | None) -> None:
        save_model(directory, layout, self.params, tokenizer)

    @contextmanager
    def compiling(self, computation: Computation, batches: Sequence[dict]) -> Iterator[None]:
        programs = [self.program(computation, batch) for batch in batches]
        try:
            yield
        except KeyboardInterrupt:  # not for other errors: other threads may wait for the same programs
            for program in programs:
                program.cancel()
            raise

    def program(self, computation: Computation, batch: dict) -> Future[Program]:
        key = computation, *((name, array.shape) for name, array in batch.items())
        program = self.programs.get(key)
        if program is None or program.cancelled():
            params = Shapes.of(self.params_for(computation))
            program = compile_program(computation, self.config, params, Shapes.of(batch))
            self.programs[key] = program
        return program

    def params_for(self, computation: Computation) -> dict:
        """Return the parameters that a program reads."""
        return self.rounded_params

    def start(self, computation: Computation, batch: dict) -> Any:
        return self.program(computation, batch).result()(self.params_for(computation), batch)

    def read(self, started: Any) -> Any:
        return jax.device_get(started)


Engine = JaxEngine
