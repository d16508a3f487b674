"""An ONNX file, opened by ONNX Runtime, which not everybody has installed."""

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.hashes import is_inside_directory

# The name of the file that holds an array, in protobuf: the key "location", then the length of the name.
EXTERNAL_DATA = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
ERRORS_ONLY = 3  # of ONNX Runtime's levels: it warns of what a user cannot change


def require_packages(what: str, *packages: str) -> None:
    """Refuse to begin if a package of the extra `onnx` is missing."""
    if missing := [package for package in packages if find_spec(package) is None]:
        raise BertJaxError(
            f"{what} needs {' and '.join(packages)}; install what is missing with pip install {' '.join(missing)}"
        )


def threads_of_environment() -> int:
    """Return the threads that a process may start, which OpenMP's variable says; 0 if it does not."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() else 0


def read_external_data(path: Path) -> dict[str, bytes]:
    """Read the files that hold weights of an ONNX file, by the names that it gives them.

    ONNX Runtime would map them into memory, and the process would end by a signal if one of them were truncated.
    """
    content = path.read_bytes()
    lengths = [(key.end(), key[1][0]) for key in EXTERNAL_DATA.finditer(content)]
    names = {content[start : start + length].decode("utf-8", "replace") for start, length in lengths}
    return {
        name: (path.parent / name).read_bytes()
        for name in sorted(names)
        if is_inside_directory(name) and (path.parent / name).is_file()
    }


class Session(Protocol):
    """An ONNX file that is opened by a program that runs it."""

    path: Path
    outputs: list[str]

    def run(self, batch: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Return the named outputs, by default all; the batch may hold more than the inputs."""


class OnnxSession:
    """An ONNX file on the CPU."""

    def __init__(self, path: Path, threads: int = 0):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or threads_of_environment()  # 0: a thread for each core
        options.log_severity_level = ERRORS_ONLY
        self.path = path
        try:
            data = read_external_data(path)
            options.add_external_initializers_from_files_in_memory(
                list(data), list(data.values()), list(map(len, data.values()))
            )
            self.session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        except Exception as error:  # its types are those of C++, and the newest are not even exported
            raise BertJaxError(
                f"{path} cannot be opened by ONNX Runtime {onnxruntime.__version__}: {first_line(error)}; export the "
                "model again"
            ) from error
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]

    def run(self, batch: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> dict[str, np.ndarray]:
        names = list(outputs) or self.outputs
        read = {name: np.asarray(batch[name], np.int64) for name in self.inputs}
        return dict(zip(names, self.session.run(names, read), strict=True))
