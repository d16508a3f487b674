"""Files: whole or absent, JSON that holds what it should, arrays longer than memory."""

import re
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.data.npy_writer import npy_writer


class Files(TypedDict):
    files: dict[str, int]


class Lists(TypedDict):
    lists: list


@dataclass
class Closed:
    file: int = 0


def test_json_is_read_back_and_what_is_wrong_with_it_is_one_line(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"files": {"Zoë": 1}})
    assert "Zoë" in path.read_text("utf-8") and path.read_text("utf-8").endswith("}\n")
    assert read_json(path, Files) == {"files": {"Zoë": 1}}
    for kind, complaint in (
        (list, "a.json: it is an object, not a list; fetch it"),
        (dict[str, list], 'a.json: "files" is an object, not a list; fetch it'),
        (dict[str, dict[str, str]], 'a.json: "files.Zoë" is a number, not a text; fetch it'),
        (dict[str, dict[int, int]], 'a.json: "files.Zoë": its name is not a whole number; fetch it'),
        (Lists, 'a.json: "lists" is missing; fetch it'),
        (Closed, 'a.json: "files" is not a known key; did you mean "file"?; fetch it'),
    ):
        with pytest.raises(BertJaxError, match=re.escape(complaint)):
            read_json(path, kind, remedy="fetch it")
    for broken in (b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}', b'{"a": "\\ud800"}', b"1" * 5000):
        path.write_bytes(broken)
        with pytest.raises(BertJaxError, match=r"a\.json") as raised:
            read_json(path)
        assert "\n" not in str(raised.value)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json")


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_an_array_grows_by_pieces_and_is_there_when_it_is_whole(tmp_path, shape):
    rows = np.arange(7 * int(np.prod(shape)), dtype=np.uint16).reshape(7, *shape)
    path = tmp_path / "a.npy"
    with npy_writer(path, np.uint16) as array:
        array.append(rows[:5])
        array.append(rows[5:])
        assert array.rows == 7 and not path.exists()
    found = np.load(path, mmap_mode="r")
    assert found.dtype == np.uint16 and np.array_equal(found, rows)
    with pytest.raises(KeyError), npy_writer(tmp_path / "b.npy", np.uint16) as array:
        array.append(rows)
        raise KeyError
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]
