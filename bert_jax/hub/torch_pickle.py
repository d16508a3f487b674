"""Reads the tensors of a `pytorch_model.bin` without torch and without trusting it.

A torch checkpoint is a pickle, and an open pickle may run anything. This unpickler knows the six names that a plain
state dict needs and refuses every other; tensors become views of the file, so a lie about sizes allocates nothing.
Both layouts are read: the zip of torch 1.6 and later, and the older stream of pickles with the raw storages behind.
"""

import math
import mmap
import pickle
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import ml_dtypes
import numpy as np

from bert_jax.errors import BertJaxError

# What the standard readers raise on bytes that are not what they expect.
DAMAGE = (
    pickle.UnpicklingError, zipfile.BadZipFile, struct.error, EOFError, OSError, ValueError, TypeError, KeyError,
    IndexError, AttributeError, OverflowError, MemoryError, RecursionError,
)  # fmt: skip
STREAM_MAGIC = 0x1950A86A20F9469CFC6C
DTYPES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


@dataclass(frozen=True)
class Storage:
    key: str
    dtype: np.dtype


@dataclass(frozen=True)
class Strided:
    """A tensor as the pickle describes it: a view of a storage that has not been read yet."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Name -> read-only array."""
    try:
        described, storages = read_zip(path) if zipfile.is_zipfile(path) else read_stream(path)
        if isinstance(described, dict) and isinstance(described.get("state_dict"), dict):
            described = described["state_dict"]
        if not isinstance(described, dict):
            raise BertJaxError(f"{path} holds a {type(described).__name__}, not a dict of tensors")
        return {
            str(name): view(tensor, storages, name)
            for name, tensor in described.items()
            if isinstance(tensor, Strided)
        }
    except BertJaxError as error:
        raise BertJaxError(f"{path}: {error}") from None
    except DAMAGE as error:
        raise BertJaxError(
            f"{path} is damaged or not a torch checkpoint ({error}); copy it again from its source"
        ) from error


def view(tensor: Strided, storages: dict[str, np.ndarray], name: str) -> np.ndarray:
    raw = storages[tensor.storage.key].view(tensor.storage.dtype)
    shape, strides = tensor.shape, tensor.strides
    if len(shape) != len(strides) or any(
        type(n) is not int or n < 0 for n in (tensor.offset, *shape, *strides)
    ):
        raise BertJaxError(f"the shape of {name} is invalid")
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if math.prod(shape) > len(raw) or (0 not in shape and last >= len(raw)):
        raise BertJaxError(f"{name} reaches beyond the end of its data: the file is cut short or was altered")
    steps = tuple(stride * raw.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(raw[tensor.offset :], shape, steps, writeable=False)


def read_zip(path: Path):
    archive = zipfile.ZipFile(path)
    entries = {entry.filename.split("/", 1)[-1]: entry for entry in archive.infolist()}
    if "data.pkl" not in entries:
        raise BertJaxError("a zip without data.pkl is not a torch checkpoint")
    whole = map_file(path)
    storages = {}
    for name, entry in entries.items():
        if not name.startswith("data/"):
            continue
        if entry.compress_type != zipfile.ZIP_STORED:
            raise BertJaxError(f"{name} is compressed, which torch never does")
        # A local header is 30 bytes and two fields whose lengths stand at its end; the bytes follow it.
        header = whole[entry.header_offset : entry.header_offset + 30].tobytes()
        start = entry.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        storages[name.removeprefix("data/")] = whole[start : start + entry.file_size]
    if entries["data.pkl"].compress_type != zipfile.ZIP_STORED:
        raise BertJaxError("data.pkl is compressed, which torch never does")
    with archive.open(entries["data.pkl"]) as file:
        return Unpickler(file).load(), storages


def read_stream(path: Path):
    with open(path, "rb") as file:
        if Unpickler(file).load() != STREAM_MAGIC:
            raise BertJaxError("not a torch checkpoint")
        for _ in ("protocol version", "machine"):
            Unpickler(file).load()
        unpickler = Unpickler(file)
        described = unpickler.load()
        keys = Unpickler(file).load()
        position = file.tell()
    whole = map_file(path)
    storages = {}
    for key in keys:
        (length,) = struct.unpack("<q", whole[position : position + 8].tobytes())
        size = length * unpickler.storages[key].dtype.itemsize
        if length < 0 or position + 8 + size > len(whole):
            raise BertJaxError("the file is cut short")
        storages[key] = whole[position + 8 : position + 8 + size]
        position += 8 + size
    return described, storages


def map_file(path: Path) -> np.ndarray:
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


class Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes]):
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str):
        if (module, name) in (("collections", "OrderedDict"), ("builtins", "dict")):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return rebuild_tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return rebuild_parameter
        if module in ("torch", "torch.storage") and name in DTYPES:
            return np.dtype(DTYPES[name])
        raise BertJaxError(
            f'it asks for "{module}.{name}", which no tensor needs; it was refused, and nothing of it was run'
        )

    def persistent_load(self, reference):
        kind, dtype, key, *_ = reference
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise BertJaxError("it refers to something that is not a tensor's storage")
        return self.storages.setdefault(str(key), Storage(str(key), dtype))


def rebuild_tensor(storage, offset, shape, strides, *_) -> Strided:
    if not isinstance(storage, Storage):
        raise BertJaxError("a tensor without a storage")
    return Strided(storage, offset, tuple(shape), tuple(strides))


def rebuild_parameter(tensor, *_) -> Strided:
    return tensor
