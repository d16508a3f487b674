"""ONNX Runtime, which not everybody has installed."""

from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line

ERRORS_ONLY = 3  # of ONNX Runtime's levels: it warns of what a user cannot change


def require_onnx() -> None:
    """Refuse to begin if a package of the extra is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise BertJaxError(
            f"--format onnx needs onnx and onnxruntime ({first_line(error)}); install them with "
            "pip install onnx onnxruntime"
        ) from error


class OnnxSession:
    """An ONNX file, opened on the CPU."""

    def __init__(self, path: Path, threads: int = 0):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads  # 0: a thread for each core
        options.log_severity_level = ERRORS_ONLY
        self.session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]

    def run(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name; the batch may hold more than the inputs."""
        read = {name: np.asarray(batch[name], np.int64) for name in self.inputs}
        return dict(zip(self.outputs, self.session.run(self.outputs, read), strict=True))
