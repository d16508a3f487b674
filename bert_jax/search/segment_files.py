"""The files of a segment: arrays, and texts as two arrays, their concatenated bytes and the offset of each.

Small files are held in memory. Large ones are mapped, so that memory holds only what a search reads of them. A mapped
file stays as it was if another replaces it, but if somebody shortens it, to read behind its end kills the process: so
its size is looked at before it is read.
"""

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.npy_writer import NpyWriter, npy_writer

REBUILD_REMEDY = "copy the index again, or build it again"
SMALL = 1 << 22  # bytes of a file that is held in memory, and whose hash is always checked


class DamagedFileError(BertJaxError):
    """Raised if a file of an index is not what was written."""


class SegmentFiles:
    """The arrays and the texts in a folder; a file that holds another type or shape is refused."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.maps: dict[str, mmap.mmap] = {}  # of large files

    def array(self, name: str, dtype: np.typing.DTypeLike, *shape: int | None) -> np.ndarray:
        """Return an array that cannot be written to. None stands for any length."""
        path, array = self.folder / name, np.empty(0)
        try:
            if self.is_large(name):
                mapped: Any = np.lib.format.open_memmap(path, mode="r")
                array = mapped.view(np.ndarray)  # slicing an array is faster than slicing a memmap
                self.maps[name] = mapped.base
            else:
                with open(path, "rb") as file:
                    array = np.lib.format.read_array(file)
                array.flags.writeable = False
        except OSError:
            raise
        except Exception as error:  # a damaged header raises errors of many types
            raise self.damage_error(name) from error
        has_shape = array.ndim == len(shape) and all(
            expected in (None, size) for size, expected in zip(array.shape, shape, strict=True)
        )
        if not has_shape or array.dtype != dtype or not array.flags.c_contiguous:
            raise self.damage_error(name)
        return array

    def texts(self, name: str, count: int | None = None) -> "StringArray":
        """Return `count` texts, or any number of them."""
        content_file, starts_file = string_files(name)
        content = self.array(content_file, np.uint8, None)
        starts = self.array(starts_file, np.int64, None if count is None else count + 1)
        is_whole = len(starts) and starts[0] == 0 and starts[-1] == len(content)
        if not is_whole or not is_ascending(starts, 0, len(content)):
            raise self.damage_error(starts_file)
        return StringArray(self, content_file, content, starts)

    def is_large(self, name: str) -> bool:
        return (self.folder / name).stat().st_size > SMALL

    def watch(self, name: str) -> None:
        """Look after a file that another library maps."""
        with open(self.folder / name, "rb") as file:
            self.maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def refuse_truncated(self) -> None:
        for name, mapped in self.maps.items():
            if mapped.size() < len(mapped):
                raise DamagedFileError(
                    f"{self.folder / name} was shortened while the index was open; {REBUILD_REMEDY}, under another "
                    "name that then takes this one's place"
                )

    def damage_error(self, name: str) -> DamagedFileError:
        return DamagedFileError(f"{self.folder / name} is damaged; {REBUILD_REMEDY}")


def is_ascending(numbers: np.ndarray, minimum: int, most: int) -> bool:
    """Whether numbers between two bounds stand in ascending order; equal ones may follow each other.

    >>> is_ascending(np.array([0, 2, 2]), 0, 2), is_ascending(np.array([2, 0]), 0, 2), is_ascending(np.array([3]), 0, 2)
    (True, False, False)
    """
    return not len(numbers) or bool(
        minimum <= numbers[0] and numbers[-1] <= most and (numbers[1:] >= numbers[:-1]).all()
    )


def string_files(name: str) -> tuple[str, str]:
    """
    >>> string_files("titles")
    ('titles.npy', 'titles.starts.npy')
    """
    return f"{name}.npy", f"{name}.starts.npy"


class StringArray(Sequence[str]):
    """Texts, each of which is decoded only when it is used."""

    def __init__(self, files: SegmentFiles, name: str, content: np.ndarray, starts: np.ndarray):
        self.files, self.name, self.content, self.starts = files, name, content, starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, which):
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        if not 0 <= which < len(self):  # iteration relies on this to stop
            raise IndexError(which)
        try:
            return str(self.content[self.starts[which] : self.starts[which + 1]].tobytes(), "utf-8")
        except UnicodeDecodeError as error:
            raise self.files.damage_error(self.name) from error

    def find(self, text: str) -> int | None:
        """Return the index of a text, or None if it is not present. The texts must be sorted."""
        position = bisect_left(self, text)
        return position if position < len(self) and self[position] == text else None


class TextWriter:
    def __init__(self, content: NpyWriter, starts: NpyWriter):
        self.content, self.starts, self.end = content, starts, 0
        starts.append(np.zeros(1, np.int64))

    def append(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        ends = self.end + np.cumsum([len(text) for text in encoded], dtype=np.int64)
        self.content.append(np.frombuffer(b"".join(encoded), np.uint8))
        self.starts.append(ends)
        self.end = int(ends[-1]) if encoded else self.end


@contextmanager
def text_writer(folder: Path, name: str) -> Iterator[TextWriter]:
    content, starts = string_files(name)
    with (
        npy_writer(folder / content, np.uint8) as bytes_,
        npy_writer(folder / starts, np.int64) as starts_,
    ):
        yield TextWriter(bytes_, starts_)
