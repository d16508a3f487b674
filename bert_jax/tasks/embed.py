"""Training an embedder, of any groups of texts."""

import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np

from bert_jax.data.examples.arrange import ACCELERATOR_PROGRAM, PROGRAM, BatchConfig, Piece
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.groups import Group, read_groups
from bert_jax.data.examples.split import split
from bert_jax.embedding_losses import LOSSES, Settings
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.hub.sentence_transformers import Embedder
from bert_jax.models.pooling import WEIGHTS
from bert_jax.tasks.embed_config import EmbedConfig as Config
from bert_jax.tasks.embedding import Embedding, Judge
from bert_jax.tasks.inspect import check_step
from bert_jax.tasks.parts import say
from bert_jax.text.apart import joined
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Encoding, Tokenizer
from bert_jax.text.truncation import Truncated

MARKS, PLAIN = ("\x1b[36m", "\x1b[32m", "\x1b[31m"), "\x1b[0m"
ROLES = ("anchor", "positive", "negative")


def open(config: Config) -> tuple[Embedding, Epochs, Config]:
    train, heldout = read_parts(config)
    texts = len(train[0].texts)
    tokenizer = open_tokenizer(hub.existing(config.init))
    task = task_of(config, texts, len(train[0].scores))
    check_scores(config, task, [*train, *heldout])
    if not task.scores_of_group:  # the loss learns from none
        train, heldout = (
            [dataclasses.replace(group, scores=()) for group in part] for part in (train, heldout)
        )
    ids = ids_of([*train, *heldout])
    truncated = Truncated(config.data.max_length)
    learnt, judged = (pieces_of(groups, tokenizer, config, ids, truncated) for groups in (train, heldout))
    if notice := truncated.notice("--config.data.max_length may be more"):
        say(notice)
    config = config.resolved(len(train), task.best, task.layout.config.hidden_size)
    mesh, encoder, backend = config.mesh, task.layout.config, jax.default_backend()
    batches = BatchConfig(
        config.data.rows, config.batch, max(config.steps, 1), config.seed, encoder.hidden_size, encoder.layers,
        config.data.max_length * texts,
        multiple=128 if backend == "tpu" else 8,
        shards=jax.device_count() // mesh.tensor * mesh.accumulate,
        program=PROGRAM.get(backend, ACCELERATOR_PROGRAM),
    )  # fmt: skip
    data = Epochs(learnt, judged, task.targets, tokenizer, batches, Judge(heldout, task.of_pairs), False)
    lengths = ", ".join(map(str, sorted(set(data.arrangement.lengths))))
    say(
        f"{len(train):,} groups of {texts} texts to train on, {len(heldout):,} held out; {config.batch} groups a step, "
        f"in {data.batch} rows of {lengths} tokens, {data.padding():.1%} of them padding"
    )
    return task, data, config


def read_parts(config: Config) -> tuple[list[Group], list[Group]]:
    """(to train on, held out)"""
    data = config.data
    train = read_groups(data.train, data.columns, data.most)
    if data.heldout:
        heldout = read_groups(data.heldout, data.columns)
        for name in ("texts", "scores"):
            ours, theirs = (len(getattr(groups[0], name)) for groups in (train, heldout))
            if ours != theirs:
                raise BertJaxError(
                    f"{heldout[0].where} has {theirs} {name} and {train[0].where} has {ours}; give both files as many"
                )
    else:
        train, heldout = (
            [group for group in part if isinstance(group, Group)] for part in split(train, data.heldout_share)
        )
    repeated = sum(count - 1 for count in Counter(group.texts for group in train).values())
    if repeated:
        say(f"{repeated:,} of {len(train):,} training groups are duplicates of others")
    return train, heldout


def task_of(config: Config, texts: int, scores: int) -> Embedding:
    wanted = config.loss
    fitting = [name for name, loss in LOSSES.items() if loss.fits(texts, scores)]
    name = wanted.name
    if name == "auto":
        usual = ("cosent", "teacher_ranking", "multiple_negatives") if scores else ("multiple_negatives",)
        name = next(name for name in usual if name in fitting)
    if name not in fitting:
        raise BertJaxError(
            f"loss.name={name} does not learn from groups of {texts} texts and {scores} scores, as {config.data.train} "
            f"has them; losses that do: {', '.join(fitting)}"
        )
    loss = LOSSES[name]
    layout = layout_of(config)
    if too_long := [size for size in wanted.sizes if not 0 < size <= layout.config.hidden_size]:
        raise BertJaxError(
            f"loss.sizes holds {too_long[0]}, and the vectors have {layout.config.hidden_size} dimensions"
        )
    settings = Settings(wanted.scale or loss.scale, wanted.margin or loss.margin, wanted.symmetric)
    return Embedding(layout, loss, settings, wanted.sizes, texts, scores * loss.scored)


def layout_of(config: Config) -> hub.Layout:
    """The encoder of `config.init` alone, which pools as the config says."""
    computed = {name: getattr(config.model, name) for name in ("dtype", "attention", "remat")}
    source, _ = hub.survey(config.init, **computed)
    before = source.embedder or Embedder()
    pooling = before.pooling if config.model.pooling == "auto" else config.model.pooling
    if before.unknown or pooling not in WEIGHTS:
        raise BertJaxError(
            f"{config.init} embeds by {before.unknown or pooling}, which cannot be trained here; set "
            f"--config.model.pooling to one of {', '.join(WEIGHTS)}"
        )
    normalize = before.normalize if config.model.normalize == "auto" else config.model.normalize == "yes"
    rates = {name: getattr(config.model, name) for name in ("dropout", "attention_dropout")}
    encoder = source.config.replace(**{name: rate for name, rate in rates.items() if rate >= 0})
    longest = config.data.max_length
    if encoder.max_positions < longest:
        raise BertJaxError(
            f"data.max_length is {longest} and {config.init} reads {encoder.max_positions} tokens; set "
            f"--config.data.max_length={encoder.max_positions}"
        )
    asked = dataclasses.asdict(config.prompts)
    prompts = asked if any(asked.values()) else before.prompts
    embedder = dataclasses.replace(
        before,
        pooling=pooling,
        normalize=normalize,
        max_length=max(longest, before.max_length or 0),
        prompts=prompts,
    )
    return dataclasses.replace(source, config=encoder, heads=(), labels=(), pooler=False, embedder=embedder)


def check_scores(config: Config, task: Embedding, groups: Sequence[Group]) -> None:
    """Refuse scores that the loss cannot learn from."""
    allowed = {"cosine": (-1.0, 1.0), "contrastive": (0.0, 1.0)}
    name = next(name for name, loss in LOSSES.items() if loss is task.loss)
    low, high = allowed.get(name, (-np.inf, np.inf))
    for group in groups:
        for score in group.scores:
            if not low <= score <= high:
                raise BertJaxError(
                    f"{group.where}: the score {score:g} is not between {low:g} and {high:g}, as loss.name={name} "
                    "needs it; divide the scores by their range, or set --config.loss.name=cosent"
                )


def ids_of(groups: Sequence[Group]) -> dict[str, int]:
    """A number for each different text."""
    numbers: dict[str, int] = {}
    for group in groups:
        for text in [group.alike] if group.alike else group.texts:
            numbers.setdefault(text, len(numbers))
    return numbers


def pieces_of(
    groups: Sequence[Group], tokenizer: Tokenizer, config: Config, ids: dict[str, int], truncated: Truncated
) -> list[Piece]:
    columns = []
    for n in range(len(groups[0].texts) if groups else 0):
        prompt = config.prompts.document if n else config.prompts.query
        texts = [prompt + group.texts[n] for group in groups]
        encodings = tokenizer.encode(texts, max_length=config.data.max_length)
        truncated.count(encodings)
        columns.append(encodings)
    pieces = []
    for i, (group, of_group) in enumerate(zip(groups, zip(*columns, strict=True), strict=True)):
        known = [group.alike] * len(group.texts) if group.alike else group.texts
        targets: dict = {"ids": [ids[text] for text in known], "weight": 1.0}
        if group.scores:
            targets["scores"] = group.scores
        pieces.append(Piece(joined(of_group), i, targets))
    return pieces


def inspect(config: Config, step: int, rows: int) -> str:
    """The groups of a step as text."""
    task, data, _ = open(config)
    check_step(data, step)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = []
    for row, pieces in enumerate(data.rows_of(step)[:rows]):
        tokens = sum(map(len, pieces))
        lines.append(f"step {step} row {row}: {len(pieces)} groups, {tokens} of {data.length(step)} tokens")
        for piece in pieces:
            for n, text in enumerate(texts_of(piece.encoding, data.tokenizer)):
                role = min(n, 2)
                name = f"{MARKS[role]}{ROLES[role]}{PLAIN}" if colour else ROLES[role]
                lines.append(f"  {name}: {text}")
            if task.scores_of_group:
                lines.append(f"  score: {', '.join(f'{score:g}' for score in piece.targets['scores'])}")
    return "\n".join(lines)


def texts_of(encoding: Encoding, tokenizer: Tokenizer) -> list[str]:
    ends = [*encoding.begins[1:], len(encoding.ids)]
    return [
        " ".join(tokenizer.tokens(encoding.ids[begin:end]))
        for begin, end in zip(encoding.begins, ends, strict=True)
    ]
