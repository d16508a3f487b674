"""A tokenized corpus on disk.

    DIR/manifest.json            version, tokenizer fingerprint, counts, hashes, where it came from
    DIR/tokenizer/               the tokenizer that gives these ids
    DIR/train/tokens.npy         all tokens, without special ones, in 2 or 4 bytes
    DIR/train/sentences.npy      where each sentence begins in `tokens`, and where the last one ends
    DIR/train/documents.npy      where each document begins in `sentences`, and where the last one ends
    DIR/heldout/...              the same three for the documents kept out of training

The arrays are plain NumPy files, read through the page cache: `np.load(..., mmap_mode="r")` opens them.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax.errors import BertJaxError, first_line
from bert_jax.files import cache_home, hash_files, read_json, write_atomically
from bert_jax.text.tokenizer import Tokenizer

VERSION = 1
PARTS = ("train", "heldout")
ARRAYS = ("tokens", "sentences", "documents")


@dataclass(frozen=True)
class Part:
    """The documents of one part of a corpus, as three arrays; `identity` changes when any of them does."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    identity: str
    plans: Path  # where plans over these documents are kept

    @property
    def count(self) -> int:
        return len(self.documents) - 1


class Corpus:
    """A corpus directory, checked: every file has the size and the hash that the manifest gives."""

    def __init__(self, directory):
        self.name = str(directory)
        self.directory = _local(self.name)
        path = self.directory / "manifest.json"
        if not path.is_file():
            raise BertJaxError(f"{self.name} has no manifest.json; `bert-jax prepare` makes a corpus")
        self.manifest = read_json(path, remedy="prepare the corpus again")
        if self.manifest.get("version") != VERSION:
            version = self.manifest.get("version")
            raise BertJaxError(f"{self.name} is of version {version}, {VERSION} is needed; prepare it again")
        self._verify()

    @property
    def fingerprint(self) -> str:
        return self.manifest["tokenizer"]["fingerprint"]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        from bert_jax.text.directory import open_tokenizer

        tokenizer = open_tokenizer(self.directory / "tokenizer")
        self.check(tokenizer, f"{self.name}/tokenizer")
        return tokenizer

    def check(self, tokenizer: Tokenizer, owner: str) -> None:
        """Refuse a tokenizer that would give other ids than those on disk."""
        if tokenizer.fingerprint != self.fingerprint:
            raise BertJaxError(
                f"{self.name} was prepared with another tokenizer than that of {owner}; "
                f"prepare it again with --tokenizer {owner}"
            )

    @cached_property
    def train(self) -> Part:
        return self._part("train")

    @cached_property
    def heldout(self) -> Part:
        return self._part("heldout")

    def _part(self, name: str) -> Part:
        if not self.manifest["counts"][name]["documents"]:
            raise BertJaxError(f"{self.name} has no {name} part; prepare it again with --heldout above 0")
        tokens, sentences, documents = (
            np.asarray(np.load(self.directory / name / f"{array}.npy", mmap_mode="r")) for array in ARRAYS
        )
        hashes = [self.manifest["files"][f"{name}/{array}.npy"]["blake2b"] for array in ARRAYS]
        identity = hashlib.blake2b("".join(hashes).encode(), digest_size=16).hexdigest()
        plans = _writable(self.directory / "plans", identity) / name
        return Part(tokens, sentences, documents, identity, plans)

    def _verify(self) -> None:
        """Sizes each time; hashes again only when a file changed since they were last right."""
        files, seen = self.manifest["files"], {}
        again = "prepare or copy it again"
        for name, facts in files.items():
            path, size = self.directory / name, facts["bytes"]
            if not path.is_file():
                raise BertJaxError(f"{self.name} lacks its file {name}; {again}")
            stat = path.stat()
            if stat.st_size != size:
                raise BertJaxError(f"{self.name}/{name} has {stat.st_size} bytes instead of {size}; {again}")
            seen[name] = [size, stat.st_mtime_ns, stat.st_ino, facts["blake2b"]]
        stamp = _writable(self.directory / "plans", _digest_of(files)) / "verified.json"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == json.dumps(seen):
            return
        for name, (_, digest) in hash_files(self.directory, files).items():
            if digest != files[name]["blake2b"]:
                raise BertJaxError(f"{self.name}/{name} is not what was prepared (its hash differs); {again}")
        write_atomically(stamp, json.dumps(seen))


def _digest_of(files: dict) -> str:
    return hashlib.blake2b(json.dumps(files, sort_keys=True).encode(), digest_size=16).hexdigest()


def _writable(directory: Path, identity: str) -> Path:
    """`directory`, or a cache of this user where a corpus is shared and read-only."""
    if os.access(directory if directory.exists() else directory.parent, os.W_OK):
        return directory
    return cache_home() / "plans" / identity


def _local(name: str) -> Path:
    """A corpus in a bucket (gs://...) is copied to this host once: batches gather from memory-mapped files."""
    if "://" not in name:
        return Path(name)
    from bert_jax.text.host_tensorflow import tf

    try:
        manifest = json.loads(tf.io.gfile.GFile(f"{name}/manifest.json").read())
        target = cache_home() / "corpora" / _digest_of(manifest["files"])
        if target.is_dir():
            return target
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        for file in ["manifest.json", *manifest["files"]]:
            (partial / file).parent.mkdir(parents=True, exist_ok=True)
            tf.io.gfile.copy(f"{name}/{file}", str(partial / file), overwrite=True)
        try:
            os.replace(partial, target)
        except OSError:  # another process of this host was first
            if not target.is_dir():
                raise
            shutil.rmtree(partial)
        return target
    except (tf.errors.OpError, KeyError, ValueError) as error:
        raise BertJaxError(f"{name}: the corpus cannot be read ({first_line(error)})") from error
