"""A command on a cluster: list the shards, do those that are not complete, and say what came of it."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from uuid import uuid4

from bert_jax.cluster.connection import check_reachable, connect
from bert_jax.cluster.dispatch import Dispatcher
from bert_jax.cluster.worker import ClusterOptions, ModelShards, ShardWork, plan_workers
from bert_jax.core.bucket import Bucket, is_bucket, without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import format_duration
from bert_jax.core.terminal import pluralize
from bert_jax.data.shards.cut_file import CUTTABLE, CutFile
from bert_jax.data.shards.shard import Shard, list_shards
from bert_jax.data.shards.shard_folder import CUT, ShardManifest, add_counts
from bert_jax.text.input_files import file_extension
from bert_jax.text.tables import count_rows

Work = TypeVar("Work", bound=ShardWork)
COUNTED_BYTES = 1 << 30  # of lines, which a dry run reads to count them
ROWS_PER_SHARD = 65_536  # of a file that is the only input


def list_files(given: str) -> list[Shard]:
    files = list_shards(given)
    if is_bucket(given):
        return files
    return [replace(file, sources=(os.path.abspath(file.source),)) for file in files]


def find_cuts(work: ModelShards, given: str, files: list[Shard]) -> list[CutFile]:
    """Return the files that are cut: with `shard_rows` all that can be, else a file that is the only input."""
    rows = work.shard_rows or (ROWS_PER_SHARD if len(files) == 1 else 0)
    if not rows or is_bucket(given) or is_bucket(work.output):
        return []  # parts stand where all machines see them
    cuttable = (file for file in files if file_extension(file.source) in CUTTABLE)
    return [CutFile(file, rows, work.folder.path / CUT, work.has_header) for file in cuttable]


def check_output(output: str, given: str, model: str, shard_rows: int | None) -> None:
    """Refuse a folder of outputs that is in that of the inputs or the model's, and to cut files of a bucket."""
    if is_bucket(output) or is_bucket(given):
        if shard_rows:
            raise BertJaxError(
                "--shard-rows cuts files that all machines mount, none in a bucket; leave it out"
            )
        if f"{output}/".startswith(f"{str(Bucket(given)).partition('*')[0].rstrip('/')}/"):
            raise BertJaxError(
                f"{without_options(output)} is in the folder of the inputs; name one elsewhere"
            )
        return
    path = Path(output).resolve()
    if os.path.isdir(given) and path.is_relative_to(Path(given).resolve()):
        raise BertJaxError(f"{output} is in the folder of the inputs; name one elsewhere")
    if os.path.isdir(model) and path.is_relative_to(Path(model).resolve()):
        raise BertJaxError(f"{output} is in the model's directory; name one elsewhere")


def run_shards(options: ClusterOptions, work: ModelShards, given: str, remove_missing: bool = False) -> str:
    """Do all shards that are not complete, and say what stands in the folder then. A failed one is an error at the end:
    the others are done first."""
    begun, folder, files = time.monotonic(), work.folder, list_files(given)
    check_reachable(options.address)
    with folder.opened():
        cuts = find_cuts(work, given, files)
        shards = list_all_shards(files, cuts)
        before = folder.list_complete(shards)
        folder.handle_stale(shards, remove_missing)
        for cut in cuts:
            if any(shard.original == cut.shard.source and shard.name not in before for shard in shards):
                cut.restore()
        if len(before) < len(shards):
            work = work.prepare(options, shards, is_new=not before)
        manifests = complete_shards(options, work, shards, before)
        for cut in cuts:
            cut.remove_parts()
    rows, counts = sum(manifest.rows for manifest in manifests), add_counts(manifests)
    took = f"{len(before)} of them before, " * bool(before) + format_duration(time.monotonic() - begun)
    took = "complete already" if len(before) == len(shards) else took
    written = f"{pluralize(rows, work.noun)} in {folder} ({pluralize(len(shards), 'shard')}, {took})"
    return written + work.describe_counts(counts)


def list_all_shards(files: list[Shard], cuts: list[CutFile]) -> list[Shard]:
    by_name = {cut.shard.name: cut for cut in cuts}
    shards = [
        shard
        for file in files
        for shard in (by_name[file.name].list_parts() if file.name in by_name else [file])
    ]
    if not shards:
        raise BertJaxError(f"{', '.join(file.display_name for file in files)}: no row to read")
    return shards


def complete_shards(
    options: ClusterOptions, work: ShardWork, shards: list[Shard], before: Mapping[str, ShardManifest]
) -> list[ShardManifest]:
    """Return the manifests of all shards, of which those that were complete `before` are not done again."""
    missing = [shard for shard in shards if shard.name not in before]
    if not missing:
        return list(before.values())
    with connect(options.address) as ray:
        dispatcher = Dispatcher(ray, work, missing, work.folder.job.verb, len(before))
        dispatcher.run(plan_workers(ray, options, len(missing)))
    if failures := dispatcher.failures:
        unbegun = f", and {len(dispatcher.queue)} were not begun" if dispatcher.queue else ""
        raise BertJaxError(
            f"{pluralize(len(failures), 'shard')} of {len(shards)} failed{unbegun}; correct what the lines above name, "
            "and repeat the command, which does only what is left"
        )
    complete = work.folder.list_complete(shards)
    return [complete[shard.name] for shard in shards]


def estimate_input(options: ClusterOptions, work: ModelShards, given: str) -> str:
    """Return what there is to do, as `estimate` does."""
    files = list_files(given)
    check_reachable(options.address)
    with temporary_work(work) as tried:
        return estimate(options, tried, list_all_shards(files, find_cuts(tried, given, files)))


def estimate(options: ClusterOptions, work: ShardWork, shards: list[Shard]) -> str:
    """Return what there is to do, and how long it takes by a shard that is done and thrown away."""
    size = sum(shard.size for shard in shards)
    if not size:
        raise BertJaxError("every input is empty: there is nothing to do")
    shard = sorted(shards, key=lambda shard: shard.size)[len(shards) // 2]  # of the usual size
    with connect(options.address) as ray:
        plan = plan_workers(ray, options, len(shards))
        # Twice, because programs are compiled for the first.
        tried = [shard, replace(shard, name=f"{shard.name}-again")]
        dispatcher = Dispatcher(ray, work, tried, "dry run")
        dispatcher.run(replace(plan, count=1))
    if dispatcher.failures:
        raise BertJaxError(dispatcher.failures[0])
    measured = dispatcher.results[-1]
    share = size / max(shard.size, 1)
    rows = f"about {measured.rows * share:,.0f}"
    is_counted = work.counts_rows and 0 < measured.rows == count_rows(shard.source)
    if is_counted and (counted := count_cheaply(shards)):
        rows, share = f"{counted:,}", counted / measured.rows
    seconds = measured.seconds * share / plan.count
    return (
        f"{pluralize(len(shards), 'shard')}, {rows} {work.unit}, {size / 1e6:,.1f} MB; about "
        f"{format_duration(seconds)} with {pluralize(plan.count, 'worker')}, by {shard.display_name}: "
        f"{measured.rows:,} {work.unit} in {measured.seconds:.1f} s; nothing was written"
    )


def count_cheaply(shards: list[Shard]) -> int | None:
    """Return the rows of all shards; None if these would have to be read for long."""
    if sum(shard.size for shard in shards if file_extension(shard.source) != ".parquet") > COUNTED_BYTES:
        return None
    counts = [count_rows(shard.source) for shard in shards]
    return None if None in counts else sum(filter(None, counts))


@contextmanager
def temporary_work(work: Work) -> Iterator[Work]:
    """Yield the same work with another folder, open, which is there while the block runs, where all machines see it:
    beside that of the outputs, or in it if that is in a bucket."""
    if is_bucket(work.output):
        bucket = Bucket(work.output) / f".dry-run-{uuid4().hex}"
        tried = replace(work, output=bucket.address)
        with tried.folder.opened():
            try:
                yield tried
            finally:
                bucket.remove_folder()
        return
    parent = work.folder.path.absolute().parent
    with explain_os_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dry-run-", dir=parent) as folder:
            tried = replace(work, output=folder)
            with tried.folder.opened():
                yield tried
