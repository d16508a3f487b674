"""The parts of a corpus: files that one worker splits and tokenizes to chunks, as `prepare` does on one machine. Joined
in the order of the files, the chunks give the same corpus."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bert_jax.cluster.connection import check_reachable
from bert_jax.cluster.run_shards import complete_shards, estimate, temporary_work
from bert_jax.cluster.worker import ClusterOptions, ShardWork, WriteShard
from bert_jax.core.bucket import is_bucket
from bert_jax.core.errors import BertJaxError
from bert_jax.core.hashes import json_digest
from bert_jax.data.corpus.chunks import ChunkSettings, make_chunks_in_process
from bert_jax.data.corpus.join_chunks import stored
from bert_jax.data.corpus.prepare import chunk_settings
from bert_jax.data.shards.cut_file import CutFile
from bert_jax.data.shards.shard import Shard, join_shards, list_bucket_shards, refuse_unreadable_name
from bert_jax.data.shards.shard_folder import CUT, Job, ShardFolder, WrittenShard, add_counts
from bert_jax.text.document_formats import WIKIEXTRACTOR_START
from bert_jax.text.input_files import file_extension
from bert_jax.text.line_reader import begins_with
from bert_jax.text.text_source import Layout, TextSource
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.word_cache import IdSource, cached

PARTS = "parts"  # the folder of the parts, in that of the chunks
ROW_FILES = (".jsonl", ".ndjson", ".parquet")
PART_ROWS = 1 << 14  # lines or rows of a file that is the only input
# Files share a part until it has this share of all bytes, or so many.
MOST_PARTS = 64
PART_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class PrepareParts(ShardWork):
    source: TextSource
    recipe: ChunkSettings

    unit, counts_rows = "documents", False

    @property
    def required_path(self) -> str:
        return self.recipe.tokenizer

    @cached_property
    def folder(self) -> ShardFolder:
        settings: dict[str, Any] = asdict(self.recipe) | {
            "tokenizer": "",  # where it is does not matter
            "column": self.source.column,
            "strict": self.source.strict,
            "files": len(self.source.files),
            "names": json_digest(self.source.files),
            "part_rows": PART_ROWS,
        }
        return ShardFolder(Path(self.output), Job("prepare", "chunks", settings))

    def list_parts(self) -> list[Shard]:
        """Return the parts: they depend on the files alone, so that a command which resumes has the same."""
        files = list_files(self.source.inputs, self.source.files)
        if len(files) == 1 and self.can_cut(files[0].source):
            shard = replace(files[0], name="part")
            return CutFile(shard, PART_ROWS, self.folder.path / CUT, at_blank_lines=True).list_parts()
        return join_shards(files, min(PART_BYTES, -(-sum(file.size for file in files) // MOST_PARTS)))

    def can_cut(self, file: str) -> bool:
        """Whether a file on this machine has rows, or documents that blank lines separate."""
        if is_bucket(file):
            return False
        extension = file_extension(file)
        is_text = extension == ".txt" and self.source.layout != "file"
        return extension in ROW_FILES or (is_text and not begins_with(file, WIKIEXTRACTOR_START))

    def open(self) -> WriteShard:
        tokenizer = open_tokenizer(self.recipe.tokenizer)
        if tokenizer.fingerprint != self.recipe.fingerprint:
            raise BertJaxError(
                f"{self.recipe.tokenizer} is another tokenizer here than where the command runs; copy it again"
            )
        return partial(self.write, cached(tokenizer))

    def write(self, tokenizer: IdSource, part: Shard) -> WrittenShard:
        source = self.source.with_files(part.sources)
        if part.original:
            source.inputs = part.sources  # the user named the file
        elif part.copied_from:
            named = set(map(str, source.inputs))
            source.inputs = [
                copy for copy, name in zip(part.sources, part.copied_from, strict=True) if name in named
            ]
        chunks = list(make_chunks_in_process(source, self.recipe, self.folder.path / part.name, tokenizer))
        documents = sum(map(len, stored(chunks, "document_sentences")))
        return self.describe_written(documents, chunks, **source.counts())


def open_source(
    inputs: Sequence[str], layout: Layout = "blank", column: str = "text", strict: bool = False
) -> TextSource:
    """Return the source of texts that the workers read, in buckets or not."""
    if not any(map(is_bucket, inputs)):
        return TextSource(inputs, layout, column, strict)
    if local := [name for name in inputs if not is_bucket(name)]:
        raise BertJaxError(
            f"{local[0]} is in no bucket, and other inputs are; prepare them from one of the two"
        )
    files = list_files(inputs, ())
    return TextSource(inputs, layout, column, strict, files=[file.source for file in files])


def list_files(inputs: Sequence[str], files: Sequence[str]) -> list[Shard]:
    """Return a shard for each of the files or, of inputs in buckets, for each file there."""
    if not is_bucket(str(inputs[0])):
        return [Shard((file,), "", os.path.getsize(file)) for file in files]
    there = {shard.source: shard for given in inputs for shard in list_bucket_shards(given)}
    return list(there.values())


def plan_parts(source: TextSource, recipe: ChunkSettings, directory: Path) -> PrepareParts:
    """Return the work for workers, whose working directory is another."""
    if others := [name for name in source.files if name.startswith("tfds:")]:
        raise BertJaxError(
            f"--ray reads files that all machines see, not {others[0]}; name files, folders or globs"
        )
    for file in source.files:
        refuse_unreadable_name(file)
    tokenizer = os.path.abspath(recipe.tokenizer) if os.path.isdir(recipe.tokenizer) else recipe.tokenizer
    return PrepareParts(
        source=source.with_absolute_paths(),
        recipe=replace(recipe, tokenizer=tokenizer),
        output=os.path.abspath(directory),
    )


def make_parts(
    options: ClusterOptions, source: TextSource, recipe: ChunkSettings, directory: Path
) -> list[Path]:
    """Return the files of all chunks in order; make those that are not complete on the cluster."""
    check_reachable(options.address)
    work = plan_parts(source, recipe, directory / PARTS)
    with work.folder.opened():
        parts = work.list_parts()
        manifests = complete_shards(options, work, parts, work.folder.list_complete(parts))
    counts = add_counts(manifests)
    if parts and parts[0].original:
        counts["empty_files"] = 0  # a part without text is no file without text
    source.set_counts(counts)
    return [work.folder.path / name for manifest in manifests for name in manifest.files]


def estimate_parts(
    options: ClusterOptions, source: TextSource, tokenizer: str, language: str, output: str
) -> str:
    """Return what there is to do, and how long it takes by a part that is made and thrown away."""
    recipe = chunk_settings(source, tokenizer, open_tokenizer(tokenizer), language)
    work = plan_parts(source, recipe, Path(output))
    check_reachable(options.address)
    with temporary_work(work) as tried:
        return estimate(options, tried, tried.list_parts())
