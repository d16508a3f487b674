"""Mutated pickles: whatever they ask for, nothing of the process changes, and memory stays where it is."""

import builtins
import collections
import hashlib
import io
import os
import pickletools
import random
import resource
import struct
import types
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from bert_jax.hub import torch_pickle
from bert_jax.hub.tensors import Tensors
from tests.hostile.fuzz_cases import Tried, tried
from tests.hostile.mutations import mutated
from tests.hostile.outcomes import LINE, RIGHT, table
from tests.support.optional_modules import torch

MEMORY = 300 << 10  # KiB that all of them together may add
OPCODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
# What a pickle would do to things that it is handed: set their state, their attributes, or a far place of the memo.
STATE = b"(K\x03X\x01\x00\x00\x00>NNNK\x08K\x01K\x00tb"
ATTACKS = (
    b"ctorch\nBFloat16Storage\n" + STATE,
    b"ctorch.storage\nFloatStorage\n" + STATE,
    b"ctorch\nFloatStorage\n}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xsb",
    b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00xK\x01sb",
    b"ctorch._utils\n_rebuild_tensor_v2\nN}X\x0c\x00\x00\x00__defaults__)s\x86b",
    b"ccollections\nOrderedDict\n}X\x01\x00\x00\x00xK\x01sb",
    b"ccollections\nOrderedDict\n(((((lo",
    b"K\x01r\x00\x00\x00\x08",  # LONG_BINPUT 2^27
    b"K\x01r\xff\xff\xff\xff",
    b"K\x01p99999999999\n",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",  # BINBYTES8
    b"\x8d\x00\x00\x00\x00\x08\x00\x00\x00",  # BINUNICODE8
    b"\x8b\xff\xff\xff\x7f",  # LONG4
    b"cposix\nsystem\nX\x04\x00\x00\x00true\x85R",
    b"cbuiltins\neval\nX\x01\x00\x00\x001\x85R",
    b"cml_dtypes\nbfloat16\n" + STATE,
    b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R" + STATE,
    b"\x82\x01", b"\x97", b"(" * 10_000, b"(" + b"}" * 100_000 + b"t", b"K\x01" + b"\x85" * 50_000,
    b"K\x01" + b"q\x07h\x07h\x07\x86" * 60 + b"}h\x07K\x01s",
)  # fmt: skip


@pytest.fixture(scope="module")
def archive() -> dict[str, bytes]:
    """What torch writes for a state dict with a parameter, views and types of all kinds."""
    whole = torch.arange(24.0).reshape(4, 6)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    tensors = module.state_dict()  # an OrderedDict with an attribute, which is pickled as a state
    tensors |= {"t": whole.T, "half": whole.half(), "brain": whole.bfloat16(), "p": torch.nn.Parameter(whole)}
    file = io.BytesIO()
    torch.save(tensors, file)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def opened(archive: dict[str, bytes], content: bytes, folder: Path) -> Tried:
    """What comes of the archive with another pickle in it, whose checksum is right."""
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as file:
        for name, whole in archive.items():
            file.writestr(name, content if name.endswith("data.pkl") else whole)
    return tried(lambda: Tensors.from_directory(folder).shapes, lambda shapes: isinstance(shapes, dict))


def pickle_in(archive: dict[str, bytes]) -> bytes:
    return next(content for name, content in archive.items() if name.endswith("data.pkl"))


def state() -> str:
    """A hash of all that a pickle could name: modules, their classes and functions, and what types compute."""
    facts: list[object] = []
    for module in (ml_dtypes, np, np.dtypes, collections, builtins, torch_pickle, os, struct):
        for name, value in sorted(vars(module).items()):
            if name == "_":
                continue
            facts.append((module.__name__, name, id(value)))
            if isinstance(value, types.FunctionType):
                facts.append((sorted(vars(value)), repr(value.__defaults__), id(value.__code__)))
            if isinstance(value, type):
                facts.append(sorted((key, id(of)) for key, of in vars(value).items() if key[:1] != "_"))
    for kind in [*torch_pickle.DTYPES.values(), np.complex128, "S3", "U4", "V2"]:
        dtype = np.dtype(kind)
        facts.append((repr(dtype), dtype.str, dtype.itemsize, dtype.alignment, dtype.fields, dtype.metadata))
    for kind in torch_pickle.DTYPES.values():
        facts.append(np.array([0, 1, 1], kind).sum().tobytes().hex())
        facts.append(np.array([1, 0, 1]).astype(kind).tobytes().hex())
    facts.append(
        sorted(vars(torch_pickle.DTYPES).items()) if hasattr(torch_pickle.DTYPES, "__dict__") else ""
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def hostile(content: bytes, drawn: random.Random) -> bytes:
    """Bytes changed, opcodes put between others, or something asked for that is no tensor."""
    if drawn.random() < 0.4:
        return mutated(content, drawn)
    starts = [place for _, _, place in pickletools.genops(content)]
    for _ in range(drawn.choice((1, 1, 2, 4))):
        place = drawn.choice(starts)
        what = drawn.choice(ATTACKS) if drawn.random() < 0.7 else drawn.choice(OPCODES) + drawn.randbytes(4)
        content = content[:place] + what + content[place:]
    return content


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def outcomes_of(archive: dict[str, bytes], folder: Path, count: int) -> list[tuple[int, str]]:
    content = pickle_in(archive)
    assert opened(archive, content, folder).kind == RIGHT
    before, taken, outcomes = state(), memory(), []
    for seed in range(count):
        outcomes.append((seed, opened(archive, hostile(content, random.Random(seed)), folder).kind))
        if seed % 100 == 0:
            assert state() == before, f"the process was changed by one of the pickles up to {seed}"
    assert state() == before
    assert memory() - taken < MEMORY
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_mutated_pickles(archive, tmp_path, count):
    outcomes = outcomes_of(archive, tmp_path, count)
    print(table(kind for _, kind in outcomes))
    assert not [pair for pair in outcomes if pair[1] not in (RIGHT, LINE)]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_each_attack(archive, tmp_path, attack):
    content, before = pickle_in(archive), state()
    for place in (2, len(content) - 1):
        outcome = opened(archive, content[:place] + attack + content[place:], tmp_path)
        assert outcome.kind in (RIGHT, LINE)
    assert state() == before
