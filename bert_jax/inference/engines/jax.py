"""The engine that computes with compiled JAX programs, on every device that JAX knows."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.core.compilation_cache import avoid_missing_tpu, enable_compilation_cache
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory, save_model
from bert_jax.inference.batching import ACCELERATOR_TOKENS, CPU_LENGTHS, CPU_TOKENS, BatchShapes
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
from bert_jax.models.mesh import AXES, ROWS, platform
from bert_jax.text.tokenizer import Tokenizer

# A CPU pays for every token of padding, and an accelerator compiles each program for seconds. Short texts share rows,
# which then hold little padding; attention costs more in longer rows.
CPU_SHAPES = BatchShapes(CPU_TOKENS, CPU_LENGTHS, shared=64)
ACCELERATOR_SHAPES = BatchShapes(
    ACCELERATOR_TOKENS, (*range(16, 128, 16), *range(128, 256, 32), *range(256, 513, 64)), shared=128
)


def platform_shapes() -> BatchShapes:
    """Return the shapes of batches that are fast on a device of this process."""
    return CPU_SHAPES if platform() == "cpu" else ACCELERATOR_SHAPES


def local_mesh() -> Mesh | None:
    """Return the mesh of this process's devices, which share the rows of a batch; None if one device computes."""
    devices = jax.local_devices()
    if len(devices) == 1 or jax.config.jax_default_device:
        return None
    return Mesh(np.array(devices).reshape(-1, 1, 1), AXES, axis_types=(AxisType.Auto,) * 3)


MOST_PROGRAMS = 128  # that a model has in memory: those that it used last


class JaxEngine:
    name: ClassVar = "jax"
    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    bank: Any = None
    slot: int = 0
    shares_scale: bool = False

    def __init__(self, config: EncoderConfig, params: dict):
        self.config, self.dtype = config, config.computed_dtype
        mesh, shapes = local_mesh(), platform_shapes()
        count = mesh.size if mesh else 1
        self.shapes = replace(shapes, tokens=count * shapes.tokens, devices=count)
        # Of parameters and of batches; None on one device, which JAX chooses.
        self.replicated = NamedSharding(mesh, P()) if mesh else None
        self.by_rows = NamedSharding(mesh, ROWS) if mesh else None
        self.device_params = place_on_device(params, self.replicated)
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

    def module_params(self, name: str) -> dict:
        return jax.device_get(self.device_params[name])

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
        program = self.programs.pop(key, None)
        if program is None or program.cancelled():
            params = Shapes.of(self.params_for(computation), self.replicated)
            program = compile_program(computation, self.config, params, Shapes.of(batch, self.by_rows))
        self.programs[key] = program  # the one that was used last stands last
        if len(self.programs) > MOST_PROGRAMS:
            self.programs.pop(next(iter(self.programs)), None)  # another thread may do the same
        return program

    def params_for(self, computation: Computation) -> dict:
        """Return the parameters that a program reads."""
        return self.rounded_params

    def start(self, computation: Computation, batch: dict) -> Any:
        return self.program(computation, batch).result()(self.params_for(computation), batch)

    def read(self, started: Any) -> Any:
        return jax.device_get(started)


Engine = JaxEngine
