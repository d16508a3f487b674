"""The named tensors of a model directory, in whichever file format; shapes are known before tensors are read."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypedDict

import ml_dtypes  # noqa: F401  (makes numpy know bfloat16, which safetensors then returns)
import numpy as np

from bert_jax.core.arguments import spell_setting
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json
from bert_jax.hub import tensorflow_checkpoint
from bert_jax.hub.torch_pickle import read_torch_tensors

# In order of preference: safetensors can hold nothing but tensors.
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


class ShardIndex(TypedDict):
    weight_map: dict[str, str]


class Tensors(Mapping[str, np.ndarray]):
    """Map names to arrays; each array is read on access."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], read: dict[str, Callable[[], np.ndarray]]):
        self.shapes, self._read = shapes, read

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Tensors":
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        return cls(shapes, {name: partial(arrays.__getitem__, name) for name in arrays})

    @classmethod
    def from_directory(cls, directory: Path) -> "Tensors":
        parts = weight_files(directory)
        if not parts:
            if checkpoint := tensorflow_checkpoint.checkpoint_in(directory):
                return cls(*tensorflow_checkpoint.variables(checkpoint))
            if any(directory.glob("onnx/*.onnx")):
                compute = spell_setting("--engine onnxruntime", 'engine="onnxruntime"')
                raise BertJaxError(
                    f"{directory} holds only an ONNX file, from which weights are not read; name the directory that it "
                    f"was exported from, or compute with the file: {compute}"
                )
            files = ", ".join(FILES)
            raise BertJaxError(f"{directory} holds no weights: none of {files}, *.ckpt.index is there")
        whole = cls({}, {})
        for part in parts:
            is_torch = part.suffix == ".bin"
            tensors = cls(*read_torch_tensors(part)) if is_torch else open_safetensors(part)
            whole.shapes |= tensors.shapes
            whole._read |= tensors._read
        return whole

    def renamed(self, rename: Callable[[str], tuple[str, ...]]) -> "Tensors":
        """Return the tensors under new names; if a tensor gets several names, its rows are split into as many parts."""
        whole = Tensors({}, {})
        for name, shape in self.shapes.items():
            names = rename(name)
            for i, new in enumerate(names):
                cut = slice(None)
                if len(names) > 1:
                    count, *rest = shape or (0,)
                    start = i * (count // len(names))
                    stop = start + count // len(names) if i < len(names) - 1 else count
                    cut, whole.shapes[new] = slice(start, stop), (stop - start, *rest)
                else:
                    whole.shapes[new] = shape
                whole._read[new] = partial(read_slice, self._read[name], cut)
        return whole

    def merge(self, others: "Tensors") -> "Tensors":
        """Return these tensors and the others together."""
        return Tensors(self.shapes | others.shapes, self._read | others._read)

    def with_zeros(self, shapes: dict[str, tuple[int, ...]]) -> "Tensors":
        """Return these tensors, with zeros of the given shapes under names that do not exist yet."""
        shapes = {name: shape for name, shape in shapes.items() if name not in self}
        zeros = {name: partial(np.zeros, shape, np.float32) for name, shape in shapes.items()}
        return Tensors(self.shapes | shapes, self._read | zeros)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read[name]()

    def __contains__(self, name) -> bool:
        return name in self.shapes  # Mapping's own would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def read_slice(read: Callable[[], np.ndarray], cut: slice) -> np.ndarray:
    return read()[cut] if cut != slice(None) else read()


def weight_files(directory: Path) -> list[Path]:
    """Return the files with the weights of a model, [] if there are none of safetensors or torch."""
    file = next((directory / name for name in FILES if (directory / name).is_file()), None)
    if file is None:
        return []
    return shards(file) if file.name.endswith(".index.json") else [file]


def shards(index: Path) -> list[Path]:
    names = set(read_json(index, ShardIndex)["weight_map"].values())
    paths = [index.parent / Path(name).name for name in sorted(names)]
    for path in paths:
        if not path.is_file():
            raise BertJaxError(f"{index} names {path.name}, which is not there; copy it into {index.parent}")
    return paths


def open_safetensors(path: Path) -> Tensors:
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, framework="np")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise BertJaxError(
            f"{path} is cut short or not a safetensors file ({error}); copy it again from its source"
        ) from error
    return Tensors(shapes, {name: partial(file.get_tensor, name) for name in shapes})
