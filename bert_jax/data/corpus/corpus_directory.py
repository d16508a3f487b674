"""A tokenized corpus on disk.

    DIR/manifest.json            version, tokenizer fingerprint, counts, hashes, origin of the text, its own hash
    DIR/tokenizer/               the tokenizer that made the ids
    DIR/train/tokens.npy         the ids of all tokens, without special ones, in 2 or 4 bytes
    DIR/train/sentences.npy      where each sentence begins in `tokens`, and where the last one ends
    DIR/train/documents.npy      where each document begins in `sentences`, and where the last one ends
    DIR/validation/...           the same three arrays for the held-out documents

The arrays are plain NumPy files, read through the page cache: `np.load(..., mmap_mode="r")` opens them.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.files import cache_home, parse_json, write_atomically
from bert_jax.core.output import keep_mode, sync_to_disk, temporary_sibling
from bert_jax.text.tokenizer import Tokenizer

CORPUS_VERSION = 3
SPLITS = ("train", "validation")
ARRAYS = ("tokens", "sentences", "documents")
AGAIN = "prepare or copy it again"


class SplitCounts(TypedDict):
    tokens: int
    sentences: int
    documents: int


class CorpusCounts(TypedDict):
    train: SplitCounts
    validation: SplitCounts


class TokenizerFacts(TypedDict):
    fingerprint: str
    size: int


class CorpusManifest(TypedDict):
    version: int
    counts: CorpusCounts
    tokenizer: TokenizerFacts
    source: dict[str, Any]
    files: dict[str, hashes.FileFacts]


@dataclass(frozen=True)
class CorpusSplit:
    """The documents of one part of a corpus, as three arrays. `identity` changes if any of them changes."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    identity: str
    plans: Path  # the directory of plans over these documents

    @property
    def count(self) -> int:
        return len(self.documents) - 1


class Corpus:
    """A corpus directory. Opening it checks that every file has the size and the hash that the manifest lists.

    Files are hashed again only if one changed since they were last right, or with `rehash`: a disk may corrupt a file
    without changing its time stamp.
    """

    def __init__(self, directory, rehash: bool = False):
        self.name = str(directory)
        self.directory = _local(self.name)
        path = self.directory / "manifest.json"
        if not path.is_file():
            raise BertJaxError(f"{self.name} has no manifest.json; `bert-jax prepare` makes a corpus")
        self.manifest = _manifest(path.read_bytes(), path)
        self._verify(rehash)

    @property
    def fingerprint(self) -> str:
        return self.manifest["tokenizer"]["fingerprint"]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        from bert_jax.text.tokenizer_directory import open_tokenizer

        tokenizer = open_tokenizer(self.directory / "tokenizer")
        self.require_tokenizer(tokenizer, f"{self.name}/tokenizer")
        return tokenizer

    def require_tokenizer(self, tokenizer: Tokenizer, owner: str) -> None:
        """Refuse a tokenizer that would produce other ids than those on disk."""
        if tokenizer.fingerprint != self.fingerprint:
            raise BertJaxError(
                f"{self.name} was prepared with another tokenizer than that of {owner}; "
                f"prepare it again with --tokenizer {owner}"
            )

    @cached_property
    def train(self) -> CorpusSplit:
        return self._open_split("train")

    @cached_property
    def validation(self) -> CorpusSplit:
        return self._open_split("validation")

    def _open_split(self, name: str) -> CorpusSplit:
        if not self.manifest["counts"][name]["documents"]:
            raise BertJaxError(
                f"{self.name} has no {name} set; prepare it again with --validation-ratio above 0"
            )
        tokens, sentences, documents = self._arrays(name)
        digests = [self.manifest["files"][f"{name}/{array}.npy"]["blake2b"] for array in ARRAYS]
        identity = hashlib.blake2b("".join(digests).encode(), digest_size=16).hexdigest()
        plans = _writable(self.directory / "plans", identity) / name
        return CorpusSplit(tokens, sentences, documents, identity, plans)

    def _arrays(self, name: str) -> list[np.ndarray]:
        """Open the arrays of one part. Refuse files that are not arrays, or whose length or type is wrong."""
        counts, arrays = self.manifest["counts"][name], []
        for part in ARRAYS:
            file = f"{name}/{part}.npy"
            is_tokens = part == "tokens"
            size = counts[part] if is_tokens else counts[part] + 1
            dtypes = ("uint16", "uint32") if is_tokens else ("uint64",)
            try:
                array = np.asarray(np.load(self.directory / file, mmap_mode="r"))
            except (OSError, ValueError, EOFError) as error:
                raise BertJaxError(
                    f"{self.name}/{file} is not an array ({first_line(error)}); {AGAIN}"
                ) from error
            is_listed = file in self.manifest["files"]
            if not (is_listed and array.shape == (size,) and array.dtype.name in dtypes):
                raise BertJaxError(
                    f"{self.name}/{file} does not match manifest.json (length or type); {AGAIN}"
                )
            arrays.append(array)
        return arrays

    def _verify(self, rehash: bool) -> None:
        """Check all sizes. Check the contents too if any file changed since they were last right, or if `rehash`."""
        files, seen = self.manifest["files"], {}
        for name, facts in files.items():
            if wrong := hashes.describe_mismatch(self.directory, name, facts["bytes"]):
                raise BertJaxError(f"{self.name}: {wrong}; {AGAIN}")
            stat = (self.directory / name).stat()
            seen[name] = [stat.st_size, stat.st_mtime_ns, stat.st_ino, facts["blake2b"]]
        stamp = _writable(self.directory / "plans", hashes.json_digest(files)) / "verified.json"
        content = json.dumps(seen).encode()
        if rehash or not stamp.is_file() or stamp.read_bytes() != content:
            self.verify_contents()
            write_atomically(stamp, content, shared=True)

    def verify_contents(self) -> None:
        """Check every hash, and that the arrays fit together, which the hashes of a stranger's corpus do not show."""
        for wrong in hashes.find_damaged_files(self.directory, self.manifest["files"]):
            raise BertJaxError(f"{self.name}: {wrong}; {AGAIN}")
        for name in SPLITS:
            if self.manifest["counts"][name]["documents"]:
                tokens, *starts = self._arrays(name)
                inner = zip(starts, (len(tokens), len(starts[0]) - 1), strict=True)
                fits = all(a[0] == 0 and a[-1] == end and (a[1:] > a[:-1]).all() for a, end in inner)
                if not fits or int(tokens.max()) >= self.manifest["tokenizer"]["size"]:
                    raise BertJaxError(
                        f"{self.name}: the arrays of its {name} part do not fit together; {AGAIN}"
                    )


def _manifest(content: bytes, where) -> Any:
    remedy = "prepare the corpus again"
    manifest = parse_json(content, dict, where, remedy)
    hashes.check_version(manifest, CORPUS_VERSION, where, "make the corpus anew with `bert-jax prepare`")
    parse_json(content, CorpusManifest, where, remedy)
    if not hashes.is_sealed(manifest):
        raise BertJaxError(f"{where} is damaged: its hash differs; {AGAIN}")
    if unsafe := [name for name in manifest["files"] if not hashes.is_inside_directory(name)]:
        raise BertJaxError(f"{where} lists {unsafe[0][:100]!r}, which is not a file of the corpus; {remedy}")
    return manifest


def _writable(directory: Path, identity: str) -> Path:
    """Return `directory` if it is writable, else a directory in the user's cache: a shared corpus may be read-only."""
    if os.access(directory if directory.exists() else directory.parent, os.W_OK):
        return directory
    return cache_home() / "plans" / identity


def _local(name: str) -> Path:
    """Return the local path of a corpus. One in a bucket (gs://...) is copied to this host once, because batches are
    gathered from memory-mapped files."""
    if "://" not in name:
        return Path(name)
    import pyarrow as pa
    from pyarrow import fs

    corpora = cache_home() / "corpora"
    retries = "?retry_limit_seconds=60" if name.startswith("gs://") else ""  # instead of 15 minutes
    try:
        bucket, root = fs.FileSystem.from_uri(name.rstrip("/") + retries)
        content = bucket.open_input_stream(f"{root}/manifest.json").read()
        manifest = _manifest(content, f"{name}/manifest.json")
        target = corpora / hashes.json_digest(manifest["files"])
        if target.is_dir():
            sizes = ((file, facts["bytes"]) for file, facts in manifest["files"].items())
            if not any(hashes.describe_mismatch(target, *size) for size in sizes):
                return target
            shutil.rmtree(target)
        with temporary_sibling(target, is_directory=True, shared=True) as partial:
            for file in ["manifest.json", *manifest["files"]]:
                (partial / file).parent.mkdir(parents=True, exist_ok=True)
                fs.copy_files(f"{root}/{file}", str(partial / file), source_filesystem=bucket)
                sync_to_disk(partial / file)
            keep_mode(partial, target, 0o777)
            try:
                partial.rename(target)
            except OSError:  # another process of this host was first
                if not target.is_dir():
                    raise
        return target
    except (OSError, pa.ArrowException) as error:
        raise BertJaxError(
            f"{name}: the corpus cannot be copied to {corpora} ({first_line(error)}); check the address and the "
            "permissions of the bucket, and the free disk space of this host"
        ) from error
