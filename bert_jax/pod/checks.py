"""What can be found wrong with a run before it begins, beside what the compiler says.

A check raises where the run would not go well, and returns a line of what it found otherwise.
"""

import shutil
import time
from pathlib import Path

from bert_jax.data.corpus.config import DataConfig
from bert_jax.data.corpus.directory import Corpus
from bert_jax.errors import BertJaxError
from bert_jax.pod.topology import Slice
from bert_jax.tasks.pretrain import Config, fitting

MEASURED = 3.0  # seconds of reading
SPARE = 0.5  # of the batches' rate that a host should have beyond what the chips eat
DUPLICATES = 0.05  # share of repeated lines from which on people are told


def of(config: Config, where: Slice) -> tuple[list[str], int | None]:
    """Lines about the config and its corpora, and the vocabulary that the model will have, if they say."""
    if config.task != "pretrain":
        raise BertJaxError(f"preflight knows pre-training, and the config's task is {config.task}")
    lines = [schedule(config), hosts(config, where)]
    if not config.data.corpora:
        return [*lines, "corpus: none named (--config.data.corpora), so nothing was read"], None
    corpora = [Corpus(name) for name in config.data.corpora]
    vocabulary = words(corpora, config)
    return [
        *lines,
        *map(counted, corpora),
        f"vocabulary: {vocabulary:,} entries, as the tokenizer's",
    ], vocabulary


def schedule(config: Config) -> str:
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


def hosts(config: Config, where: Slice) -> str:
    if config.data.batch % where.hosts:
        several = -(-config.data.batch // where.hosts) * where.hosts
        raise BertJaxError(
            f"a batch of {config.data.batch} rows does not divide over {where.hosts} hosts; "
            f"set --config.data.batch={several}"
        )
    return f"hosts: each of {where.hosts} makes {config.data.batch // where.hosts} rows of a batch"


def words(corpora: list[Corpus], config: Config) -> int:
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


def counted(corpus: Corpus) -> str:
    counts = corpus.manifest["counts"]
    lines, repeated = counts.get("lines", 0), counts.get("repeated_lines", 0)
    share = repeated / lines if lines else 0
    warning = "; take repeated ones out" if share > DUPLICATES else ""
    return (
        f"corpus {corpus.name}: {counts['train']['documents']:,} documents, fingerprint {corpus.fingerprint[:12]}, "
        f"{share:.1%} of its lines stood there before{warning}"
    )


def of_input(config: Config, phases: list[dict], where: Slice, workdir: str | None) -> list[str]:
    """Lines about room for checkpoints, and whether this machine would make batches as fast as the slice eats them."""
    lines = [space(config, phases[0]["state"], workdir)]
    if config.data.corpora:
        lines += [read_speed(config, phase, where) for phase in phases if "rows_per_second" in phase]
    return lines


def space(config: Config, state: int, workdir: str | None) -> str:
    """`state` is the bytes of a checkpoint."""
    every = config.checkpoints.keep_every
    kept = config.checkpoints.keep + (config.steps // every if every else 0)
    needed = (kept + 1) * state  # an old one goes when its successor is written
    line = (
        f"checkpoints: {state / 1e9:.1f} GB each, {needed / 1e9:,.0f} GB for {kept} and the one being written"
    )
    if workdir is None:
        return line
    if "://" in workdir:
        return f"{line}; how much {workdir} takes is not known here"
    there = next(
        path for path in (Path(workdir).absolute(), *Path(workdir).absolute().parents) if path.exists()
    )
    free = shutil.disk_usage(there).free
    if free < needed:
        raise BertJaxError(
            f"{needed / 1e9:,.1f} GB of checkpoints do not go into {workdir}, where {free / 1e9:,.1f} GB are free; "
            "make room, or keep fewer: --config.checkpoints.keep, --config.checkpoints.keep_every"
        )
    return f"{line}, {free / 1e9:,.0f} GB free in {workdir}"


def read_speed(config: Config, phase: dict, where: Slice) -> str:
    from bert_jax.data.corpus.stream import Stream  # TensorFlow takes seconds

    data = config.data
    one = DataConfig(**{**vars(data), "lengths": (phase["length"],), "shares": (1.0,)})
    batches = Stream(one, config.seed, config.steps).batches()
    for _ in range(5):  # plans, tracing, threads
        next(batches)
    begun, rows = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < MEASURED:
        rows += len(next(batches)["tokens"])
    here, eaten = rows / passed, phase["rows_per_second"] / where.hosts
    warning = "" if here > eaten * (1 + SPARE) else ": too slow, unless its hosts have more cores"
    return (
        f"input: this machine makes {here:,.0f} rows/s of {phase['length']}, a host of the slice takes "
        f"{eaten:,.0f} at most{warning}"
    )
