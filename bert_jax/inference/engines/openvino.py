"""The engine that computes with the ONNX file of a directory by OpenVINO, on CPUs. Nothing of it imports JAX."""

import sys
from collections.abc import Sequence
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.processor import cores
from bert_jax.hub.onnx_files import OnnxFile
from bert_jax.inference.batching import CPU_LENGTHS, CPU_TOKENS, BatchShapes
from bert_jax.inference.engines.onnxruntime import OnnxRuntimeEngine
from bert_jax.inference.onnx_session import threads_of_environment

# For each new shape of a batch, OpenVINO compiles for some milliseconds.
SHAPES = BatchShapes(CPU_TOKENS, CPU_LENGTHS, overhead=24)
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}  # of what is not in int8


class OpenVinoSession:
    """An ONNX file on the CPU."""

    def __init__(self, file: OnnxFile):
        # Otherwise importing OpenVINO reports to Google Analytics, from a process that it forks.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        import openvino

        self.path, core = file.path, openvino.Core()
        self.lock = Lock()  # a compiled model computes one batch at a time, on all cores
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": PRECISIONS[file.dtype],
            "INFERENCE_NUM_THREADS": threads_of_environment() or cores(),
            "ENABLE_MMAP": False,  # or else the process would end by a signal if the file were truncated
        }
        core.set_property("CPU", settings)
        try:
            self.model = core.compile_model(core.read_model(self.path), "CPU")
        except RuntimeError as error:
            raise BertJaxError(
                f"{self.path} cannot be opened by OpenVINO {openvino.__version__}: {first_line(error)}; export the "
                "model again"
            ) from error
        self.inputs = [name for value in self.model.inputs for name in value.names]
        self.outputs = [name for value in self.model.outputs for name in value.names]  # and of inner values

    def run(self, batch: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> dict[str, np.ndarray]:
        read = {name: np.asarray(batch[name], np.int64) for name in self.inputs}
        with self.lock:
            computed = self.model(read)
        return {name: computed[name] for name in outputs or self.outputs}


class OpenVinoEngine(OnnxRuntimeEngine):
    name: ClassVar = "openvino"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int8")
    shapes = SHAPES
    open_session: ClassVar[Any] = OpenVinoSession
    static_only: ClassVar = True


Engine = OpenVinoEngine
