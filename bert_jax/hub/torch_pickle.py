"""Read the tensors of a `pytorch_model.bin` without torch and without trusting the file.

A torch checkpoint is a pickle, and loading a pickle may run any code and change anything that it can name. This reader
interprets by itself the few opcodes that a plain state dict needs: it calls nothing, gives the pickle no object of the
process, and refuses all other opcodes. Tensors become views of the file, so a false size allocates nothing. Both
layouts are read: the zip of torch 1.6 and later, and the older stream of pickles, followed by the raw storages. The zip
is also written, for the layers that other programs look for in such files.
"""

import math
import mmap
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from bert_jax.core.errors import BertJaxError, explain_os_error, first_line
from bert_jax.core.output import atomic_file
from bert_jax.core.typed_json import type_name

# What the readers raise on unexpected bytes; zipfile raises NotImplementedError if the header asks for a later version
# of the format.
DAMAGE = (
    zipfile.BadZipFile, struct.error, EOFError, ValueError, TypeError, KeyError, IndexError, OverflowError,
    NotImplementedError,
)  # fmt: skip
STREAM_MAGIC, STREAM_VERSION = 0x1950A86A20F9469CFC6C, 1001
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
STORAGES = {
    f"{module}.{name}": np.dtype(dtype)
    for name, dtype in DTYPES.items()
    for module in ("torch", "torch.storage")
}
MOST_OPCODES = 1 << 22  # each may take some 70 bytes; the largest published encoders have 30,000
DICTS = ("collections.OrderedDict", "builtins.dict")
TENSOR, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
LITERALS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip


@dataclass(frozen=True)
class Name:
    """A global name that a state dict may use."""

    text: str


@dataclass(frozen=True)
class Storage:
    key: str
    dtype: np.dtype
    count: int


@dataclass(frozen=True)
class Strided:
    """A tensor as the pickle describes it: a view of a storage that has not been read yet."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class Record:
    """Bytes of the file. If they have a checksum, it is checked when they are first read."""

    name: str
    mapped: np.ndarray
    checksum: int | None = None

    @cached_property
    def content(self) -> np.ndarray:
        if self.checksum is not None and zlib.crc32(self.mapped) != self.checksum:
            raise BertJaxError(f"its {self.name} is damaged (its checksum differs)")
        return self.mapped


def read_torch_tensors(path: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, Callable[[], np.ndarray]]]:
    """Return the shapes of the tensors and, for each, a function that reads it as a read-only array."""
    return refuse_damaged(path, partial(described_tensors, path))


def refuse_damaged(path: Path, read: Callable):
    """Return what `read` returns; turn its errors into one line on what is wrong with the file."""
    try:
        return read()
    except BertJaxError as error:
        raise BertJaxError(f"{path}: {error}; copy it again from its source") from None
    except OSError as error:
        raise explain_os_error(error, path) from error
    except DAMAGE as error:
        raise BertJaxError(
            f"{path} is damaged or not a torch checkpoint ({first_line(error)}); copy it again from its source"
        ) from error


def described_tensors(path: Path):
    described, records = read_zip(path) if zipfile.is_zipfile(path) else read_stream(path)
    if isinstance(described, dict) and isinstance(described.get("state_dict"), dict):
        described = described["state_dict"]
    if not isinstance(described, dict):
        raise BertJaxError(f"it holds {type_name(described)}, not a dict of tensors")
    shapes, read = {}, {}
    for name, tensor in described.items():
        if isinstance(tensor, Strided):
            name = printable(name)
            record = records[tensor.storage.key]
            check_view(tensor, len(record.mapped), name)
            shapes[name] = tensor.shape
            read[name] = partial(refuse_damaged, path, partial(view_tensor, tensor, record))
    return shapes, read


def printable(name) -> str:
    if not isinstance(name, str) or not name.isprintable():
        raise BertJaxError(f"it holds a tensor whose name is {describe_pickled(name)}")
    return name


def describe_pickled(value) -> str:
    """Describe a value of the pickle briefly; the value may be of any size."""
    return ascii(value[:60]) if isinstance(value, str) else type_name(value)


def check_view(tensor: Strided, size: int, name: str) -> None:
    """Refuse a view that is not within its storage of `size` bytes."""
    shape, strides, storage = tensor.shape, tensor.strides, tensor.storage
    numbers = (tensor.offset, *shape, *strides)
    if len(shape) != len(strides) or any(type(n) is not int or n < 0 for n in numbers):
        raise BertJaxError(f"the shape of {name} is invalid")
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    claimed = storage.count * storage.dtype.itemsize
    if claimed != size or math.prod(shape) > storage.count or (0 not in shape and last >= storage.count):
        raise BertJaxError(f"{name} reaches beyond the end of its data: the file is cut short or was altered")


def view_tensor(tensor: Strided, record: Record) -> np.ndarray:
    values = record.content.view(tensor.storage.dtype)
    steps = tuple(stride * values.itemsize for stride in tensor.strides)
    return np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, steps, writeable=False)


def read_zip(path: Path):
    archive = zipfile.ZipFile(path)
    entries = {entry.filename.split("/", 1)[-1]: entry for entry in archive.infolist()}
    if "data.pkl" not in entries:
        raise BertJaxError("a zip without data.pkl is not a torch checkpoint")
    whole = map_file(path)
    records = {}
    for name, entry in entries.items():
        if entry.compress_type != zipfile.ZIP_STORED:
            raise BertJaxError(f"{name} is compressed, which torch never does")
        # A local header has 30 bytes, whose last 4 are the lengths of two fields; the fields and the content follow.
        header = whole[entry.header_offset : entry.header_offset + 30].tobytes()
        start = entry.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        records[name] = Record(name, whole[start : start + entry.file_size], entry.CRC)
    if "byteorder" in records and records["byteorder"].content.tobytes() != b"little":
        raise BertJaxError("its numbers are not little-endian, the only byte order that is supported")
    storages = {name.removeprefix("data/"): record for name, record in records.items() if "data/" in name}
    with archive.open(entries["data.pkl"]) as file:
        return unpickle(file), storages


def read_stream(path: Path):
    with open(path, "rb") as opened:
        # A memory map reads no more than the file has, whatever length the pickle claims.
        file: Any = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if unpickle(file) != STREAM_MAGIC:
        raise BertJaxError("not a torch checkpoint")
    version, machine = unpickle(file), unpickle(file)
    if version != STREAM_VERSION or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise BertJaxError("its layout is of another version or machine")
    unpickler = Unpickler(file)
    described, keys, position = unpickler.load(), unpickle(file), file.tell()
    if not isinstance(keys, list) or not all(map(is_key, keys)):
        raise BertJaxError("its storages are not named by strings and integers")
    whole = np.frombuffer(file, np.uint8)
    records = {}
    for key in keys:
        storage = unpickler.storages[key]
        (count,) = struct.unpack("<q", whole[position : position + 8].tobytes())
        size = count * storage.dtype.itemsize
        if count != storage.count or position + 8 + size > len(whole):
            raise BertJaxError("the file is cut short")
        records[key] = Record(key, whole[position + 8 : position + 8 + size])
        position += 8 + size
    return described, records


def map_file(path: Path) -> np.ndarray:
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def unpickle(file: IO[bytes]) -> Any:
    return Unpickler(file).load()


class Unpickler:
    """A stack machine over the opcodes of one pickle.

    It makes only plain values (numbers, strings, tuples, lists, dicts) and a `Name`, `Storage` or `Strided`.
    """

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.storages: dict[str, Storage] = {}
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self.file)):
            if count == MOST_OPCODES:
                raise BertJaxError(f"it has more than {MOST_OPCODES:,} opcodes, which no state dict needs")
            if opcode.name in LITERALS:
                self.stack.append(argument)
            elif opcode.name in CONSTANTS:
                self.stack.append(CONSTANTS[opcode.name])
            else:
                self.step(opcode.name, argument)
        return self.stack.pop()

    def step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self.marks.append(len(stack))
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "TUPLE":
                stack.append(tuple(self.marked()))
            case "EMPTY_LIST":
                stack.append([])
            case "LIST":
                stack.append(self.marked())
            case "APPEND":
                value = stack.pop()
                self.top(list).append(value)
            case "APPENDS":
                values = self.marked()
                self.top(list).extend(values)
            case "EMPTY_DICT":
                stack.append({})
            case "DICT":
                stack.append(make_dict(self.marked()))
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self.top(dict).update(make_dict([key, value]))
            case "SETITEMS":
                values = self.marked()
                self.top(dict).update(make_dict(values))
            case "GLOBAL":
                stack.append(resolve_global(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(resolve_global(module, name))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(emulate_call(function, arguments))
            case "BUILD":  # the versions of its modules, which a state dict carries as an attribute
                stack.pop()
                self.top(dict)
            case "BINPERSID":
                storage = storage_of(stack.pop())
                self.storages[storage.key] = storage
                stack.append(storage)
            case _:
                raise BertJaxError(f"it uses the opcode {opcode}, which no tensor needs")

    def marked(self) -> list:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def top(self, value_type: type) -> Any:
        if type(self.stack[-1]) is not value_type:
            raise BertJaxError(
                f"it fills {describe_pickled(self.stack[-1])} as if it were a {value_type.__name__}"
            )
        return self.stack[-1]


def resolve_global(module, name) -> Name:
    text = f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else ""
    if text not in (*DICTS, TENSOR, PARAMETER, *STORAGES):
        raise BertJaxError(
            f"it asks for {describe_pickled(text)}, which no tensor needs; it was refused, and nothing of it was run"
        )
    return Name(text)


def make_dict(values: list) -> dict:
    """Make a dict of alternating keys and values."""
    pairs = dict(zip(values[::2], values[1::2], strict=True)) if all(map(is_key, values[::2])) else None
    if pairs is None:
        raise BertJaxError("a dict has keys other than strings and integers")
    return pairs


def is_key(value) -> bool:
    """Whether it is safe to hash: nested tuples may take for ever, and deep ones crash the process."""
    return type(value) in (str, int)


def emulate_call(function, arguments) -> Any:
    """Return what a call would return, for the few functions that a state dict uses; call nothing."""
    if not isinstance(function, Name) or type(arguments) is not tuple:
        raise BertJaxError("it calls something that has no name")
    if function.text in DICTS:
        return make_dict([value for pair in (arguments[0] if arguments else ()) for value in pair])
    if function.text == PARAMETER:
        return arguments[0]
    if function.text == TENSOR:
        storage, offset, shape, strides, *_ = arguments
        if isinstance(storage, Storage) and type(shape) is type(strides) is tuple:
            return Strided(storage, offset, shape, strides)
    raise BertJaxError(f"it calls {function.text} with arguments that make no tensor")


def storage_of(reference) -> Storage:
    """Return the storage of a persistent id: ("storage", its type, its key, the device it was on, its size)."""
    tag, name, key, device, count, *view = reference
    known = isinstance(name, Name) and name.text in STORAGES
    typed = type(key) is str and type(device) is str and type(count) is int
    if tag != "storage" or not known or not typed or any(view):
        raise BertJaxError("it refers to something that is not a tensor's storage")
    return Storage(key, STORAGES[name.text], count)


def write_torch_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors as float32 in the zip of torch, equal ones as equal files."""
    tensors = {name: np.asarray(array, np.float32, order="C") for name, array in tensors.items()}
    described = b"".join(
        encode(name) + describe_tensor(array, n) for n, (name, array) in enumerate(tensors.items())
    )
    files = {"data.pkl": b"\x80\x02}(" + described + b"u.", "byteorder": b"little"}
    files |= {f"data/{n}": array.astype("<f4").tobytes() for n, array in enumerate(tensors.values())}
    with atomic_file(path) as new, zipfile.ZipFile(new, "w") as archive:
        for name, content in (files | {"version": b"3\n"}).items():
            archive.writestr(zipfile.ZipInfo(f"{path.stem}/{name}"), content)


def describe_tensor(array: np.ndarray, number: int) -> bytes:
    """Return the opcodes that make a tensor of a whole storage."""
    storage = encode("storage") + b"ctorch\nFloatStorage\n" + encode(str(number)) + encode("cpu")
    strides = tuple(step // array.itemsize for step in array.strides)
    view = encode(0) + encode(array.shape) + encode(strides) + encode(False)
    function, hooks = b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n)R"
    return function + b"((" + storage + encode(array.size) + b"tQ" + view + hooks + b"tR"


def encode(value) -> bytes:
    """Return the opcodes that push a plain value."""
    return pickle.dumps(value, protocol=2)[2:-1]
