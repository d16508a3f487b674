"""Checks of a run before it begins, beside those of the compiler.

A check raises where the run would fail, and returns a line of facts otherwise.
"""

import dataclasses
import shutil
import time
from pathlib import Path

from bert_jax.data.corpus.config import DataConfig
from bert_jax.data.corpus.directory import Corpus
from bert_jax.errors import BertJaxError
from bert_jax.pod.topology import Slice
from bert_jax.tasks.pretrain import Config, fitting

MEASURED = 3.0  # seconds of reading
SPARE = 0.5  # how much faster than the chips a host should make batches
DUPLICATES = 0.05  # share of repeated lines that brings a warning


def check_config(config: Config, where: Slice) -> tuple[list[str], int | None]:
    """Lines about the config and its corpora, and the size of the vocabulary if there is a corpus."""
    if config.task != "pretrain":
        raise BertJaxError(f"preflight is for pre-training, and the config's task is {config.task}")
    lines = [check_schedule(config), check_hosts(config, where)]
    if not config.data.corpora:
        return [*lines, "corpus: none (--config.data.corpora), so none was checked"], None
    corpora = [Corpus(name) for name in config.data.corpora]
    vocabulary = check_vocabulary(corpora, config)
    counts = f"vocabulary: {vocabulary:,} entries, as the tokenizer's"
    return [*lines, *map(describe_corpus, corpora), counts], vocabulary


def check_schedule(config: Config) -> str:
    steps, warmup = config.steps - max(config.first_step, 0), config.optimizer.warmup_of(config.steps)
    if warmup >= steps:
        raise BertJaxError(
            f"{steps:,} steps end within the warm-up of {warmup:,}; set --config.optimizer.warmup={steps // 10}"
        )
    if config.checkpoints.every > steps:
        raise BertJaxError(
            f"{steps:,} steps end before the first checkpoint at {config.checkpoints.every:,}; "
            f"set --config.checkpoints.every={max(steps // 10, 1)}"
        )
    return f"schedule: {warmup:,} of {steps:,} steps warm up"


def check_hosts(config: Config, where: Slice) -> str:
    if config.data.batch % where.hosts:
        several = -(-config.data.batch // where.hosts) * where.hosts
        raise BertJaxError(
            f"a batch of {config.data.batch} rows does not divide over {where.hosts} hosts; "
            f"set --config.data.batch={several}"
        )
    return f"hosts: each of {where.hosts} makes {config.data.batch // where.hosts} rows of a batch"


def check_vocabulary(corpora: list[Corpus], config: Config) -> int:
    """The entries of the vocabulary that all corpora share."""
    tokenizer = corpora[0].tokenizer
    for corpus in corpora[1:]:
        corpus.check(tokenizer, corpora[0].name)
    model = fitting(config.model, tokenizer.size, max(config.data.lengths))
    for name, number in vars(tokenizer.special).items():
        if not 0 <= number < model.vocab_size:
            raise BertJaxError(
                f"{corpora[0].name}/tokenizer: the {name} token has id {number}, outside of the {model.vocab_size:,} "
                "embeddings; prepare the corpus with a tokenizer whose ids are its own"
            )
    return model.vocab_size


def describe_corpus(corpus: Corpus) -> str:
    counts = corpus.manifest["counts"]
    lines, repeated = counts.get("lines", 0), counts.get("repeated_lines", 0)
    share = repeated / lines if lines else 0
    warning = "; remove them" if share > DUPLICATES else ""
    return (
        f"corpus {corpus.name}: {counts['train']['documents']:,} documents, fingerprint {corpus.fingerprint[:12]}, "
        f"{share:.1%} of its lines are duplicates{warning}"
    )


def check_machine(config: Config, phases: list[dict], where: Slice, workdir: str | None) -> list[str]:
    """Lines about space for checkpoints, and whether this machine makes batches as fast as the slice takes them."""
    lines = [check_space(config, phases[0]["state"], workdir)]
    if config.data.corpora:
        lines += [check_input(config, phase, where) for phase in phases if "rows_per_second" in phase]
    return lines


def check_space(config: Config, state: int, workdir: str | None) -> str:
    """`state` is the bytes of a checkpoint."""
    every = config.checkpoints.keep_every
    kept = config.checkpoints.keep + (config.steps // every if every else 0)
    needed = (kept + 1) * state  # the oldest is deleted once the next is written
    line = (
        f"checkpoints: {state / 1e9:.1f} GB each, {needed / 1e9:,.0f} GB for {kept} and the one being written"
    )
    if workdir is None:
        return line
    if "://" in workdir:
        return f"{line}; the free space of {workdir} is unknown"
    path = Path(workdir).absolute()
    free = shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists())).free
    if free < needed:
        raise BertJaxError(
            f"{needed / 1e9:,.1f} GB of checkpoints do not fit in {workdir}, where {free / 1e9:,.1f} GB are free; "
            "free some space, or keep fewer: --config.checkpoints.keep, --config.checkpoints.keep_every"
        )
    return f"{line}, {free / 1e9:,.0f} GB free in {workdir}"


def check_input(config: Config, phase: dict, where: Slice) -> str:
    length, taken = phase["length"], phase["rows_per_second"] / where.hosts
    made = rows_per_second(dataclasses.replace(config.data, lengths=(length,), shares=(1.0,)), config.seed)
    warning = "" if made > taken * (1 + SPARE) else ": too slow, unless its hosts have more cores"
    return (
        f"input: this machine makes {made:,.0f} rows/s of {length}, a host of the slice takes "
        f"{taken:,.0f} at most{warning}"
    )


def rows_per_second(data: DataConfig, seed: int = 0, seconds: float = MEASURED) -> float:
    """How many rows of a corpus this machine makes."""
    from bert_jax.data.corpus.stream import Stream  # TensorFlow takes seconds

    batches = Stream(data, seed, steps=1_000_000).batches()
    for _ in range(5):  # plans, tracing, threads
        next(batches)
    begun, rows = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        rows += len(next(batches)["tokens"])
    return rows / passed
