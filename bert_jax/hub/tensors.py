"""The named tensors of a model directory, whichever file holds them; shapes are known before anything is read."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.files import read_json
from bert_jax.hub import google

# In order of preference: safetensors can hold nothing but tensors.
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


class Tensors(Mapping[str, np.ndarray]):
    """Name -> array, each read when asked for."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], read: dict[str, Callable[[], np.ndarray]]):
        self.shapes, self._read = shapes, read

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Tensors":
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        return cls(shapes, {name: partial(arrays.__getitem__, name) for name in arrays})

    @classmethod
    def in_directory(cls, directory: Path) -> "Tensors":
        file = next((directory / name for name in FILES if (directory / name).is_file()), None)
        if file is None:
            if checkpoint := google.checkpoint_in(directory):
                return cls(*google.variables(checkpoint))
            files = ", ".join(FILES)
            raise BertJaxError(f"{directory} holds no weights: none of {files}, *.ckpt.index is there")
        parts = shards(file) if file.name.endswith(".index.json") else [file]
        whole = cls({}, {})
        for part in parts:
            tensors = cls.of(torch_tensors(part)) if part.suffix == ".bin" else in_safetensors(part)
            whole.shapes |= tensors.shapes
            whole._read |= tensors._read
        return whole

    def renamed(self, rename: Callable[[str], str]) -> "Tensors":
        return Tensors(
            {rename(name): shape for name, shape in self.shapes.items()},
            {rename(name): read for name, read in self._read.items()},
        )

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read[name]()

    def __contains__(self, name) -> bool:
        return name in self.shapes  # without reading it, as Mapping's own would

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def shards(index: Path) -> list[Path]:
    names = set(map(str, read_json(index, keys={"weight_map": dict})["weight_map"].values()))
    paths = [index.parent / Path(name).name for name in sorted(names)]
    for path in paths:
        if not path.is_file():
            raise BertJaxError(f"{index} names {path.name}, which is not there; copy it into {index.parent}")
    return paths


def in_safetensors(path: Path) -> Tensors:
    import ml_dtypes  # noqa: F401  (makes numpy know bfloat16, which safetensors then returns)
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, framework="np")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise BertJaxError(
            f"{path} is cut short or not a safetensors file ({error}); copy it again from its source"
        ) from error
    return Tensors(shapes, {name: partial(file.get_tensor, name) for name in shapes})


def torch_tensors(path: Path) -> dict[str, np.ndarray]:
    from bert_jax.hub import torch_pickle

    return torch_pickle.tensors(path)
