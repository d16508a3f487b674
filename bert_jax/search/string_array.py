"""Store texts in two NumPy files: their concatenated bytes, and the offset of each text. Texts are read only when they
are used, so millions of them take no memory."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bert_jax.data.growing_array import GrowingArray, growing_array
from bert_jax.search.mapped_array import damage_error, is_ascending, map_array


def string_files(name: str) -> tuple[str, str]:
    """
    >>> string_files("titles")
    ('titles.npy', 'titles.starts.npy')
    """
    return f"{name}.npy", f"{name}.starts.npy"


class StringArray(Sequence[str]):
    def __init__(self, path: Path, content: np.ndarray, starts: np.ndarray):
        self.path, self.content, self.starts = path, content, starts

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
            raise damage_error(self.path) from error

    def find(self, text: str) -> int | None:
        """Return the index of a text, or None if it is not present. The texts must be sorted."""
        place = bisect_left(self, text)
        return place if place < len(self) and self[place] == text else None


def open_strings(folder: Path, name: str, count: int | None = None) -> StringArray:
    """Open `count` texts, or any number of them."""
    content_file, starts_file = string_files(name)
    content = map_array(folder / content_file, np.uint8, None)
    starts = map_array(folder / starts_file, np.int64, None if count is None else count + 1)
    if (
        not len(starts)
        or starts[0] != 0
        or starts[-1] != len(content)
        or not is_ascending(starts, 0, len(content))
    ):
        raise damage_error(folder / starts_file)
    return StringArray(folder / content_file, content, starts)


class GrowingStrings:
    def __init__(self, content: GrowingArray, starts: GrowingArray):
        self.content, self.starts, self.end = content, starts, 0
        starts.append(np.zeros(1, np.int64))

    def append(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        ends = self.end + np.cumsum([len(text) for text in encoded], dtype=np.int64)
        self.content.append(np.frombuffer(b"".join(encoded), np.uint8))
        self.starts.append(ends)
        self.end = int(ends[-1]) if encoded else self.end


@contextmanager
def growing_strings(folder: Path, name: str) -> Iterator[GrowingStrings]:
    content, starts = string_files(name)
    with (
        growing_array(folder / content, np.uint8) as bytes_,
        growing_array(folder / starts, np.int64) as starts_,
    ):
        yield GrowingStrings(bytes_, starts_)
