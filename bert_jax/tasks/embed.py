"""Training an embedder on groups of texts: pairs, triplets, scored pairs, labelled texts."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.group_columns import describe_columns
from bert_jax.data.examples.groups import Group, check_shapes, read_groups
from bert_jax.data.examples.split import train_validation_split
from bert_jax.finetuning.embedding_task import (
    MAX_SCALE,
    EmbeddingTask,
    GroupsRunConfig,
    has_other_positive,
)
from bert_jax.finetuning.embedding_task import EmbedConfig as Config
from bert_jax.finetuning.encoded_groups import compute_teacher_vectors, encode_groups, number_texts
from bert_jax.finetuning.encoded_windows import make_batch_config
from bert_jax.finetuning.model_cards import describe_groups, embedder_card
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection, TextSettings
from bert_jax.losses.embedding import EMBEDDING_LOSSES, EmbeddingLoss, EmbeddingLossSettings, pair_scores
from bert_jax.models.pooling_weights import POOLING_WEIGHTS
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.task import ModelCard, Outline, OutlinePhase, make_outline

C = TypeVar("C", bound=GroupsRunConfig)
T = TypeVar("T", bound=EmbeddingTask)
USUAL = "multiple_negatives"  # the loss of groups without scores


def open(config: Config, directories: ModelDirectories) -> tuple[EmbeddingTask, Epochs, Config]:
    return open_groups(config, directories, make_embedding_task, embedder_card)


def preview(config: Config, directories: ModelDirectories) -> tuple[EmbeddingTask, Epochs, Config]:
    return open_groups(config, directories, make_embedding_task, embedder_card, with_teacher=False)


def outline(config: Config, directories: ModelDirectories) -> Outline:
    return outline_groups(config, directories, preview, make_embedding_task)


def open_groups(
    config: C,
    directories: ModelDirectories,
    make_task: Callable[[C, ModelDirectories, int, int], T],
    make_card: Callable[[T, C, str, TruncationCounter], ModelCard],
    with_teacher: bool = True,
) -> tuple[T, Epochs, C]:
    """Open a task that learns from groups of texts, and its data; `make_task` gets the numbers of texts and scores of a
    group. Unless `with_teacher`, the teacher's vectors, which take long to compute, are zeros."""
    if not any(config.data.train):
        raise BertJaxError(
            "config key data.train is missing; give a file of pairs, --config.data.train=pairs.jsonl"
        )
    config = config.resolve_length(directories[config.init].layout)
    sets, validation = read_group_splits(config)
    for spec in filter(None, [*config.data.train, config.data.validation]):
        print_once(describe_columns(spec, config.data.columns, "--config.data.columns.texts or .score"))
    train = [group for groups in sets for group in groups]
    texts = len(train[0].texts)
    tokenizer = directories[config.init].tokenizer
    task = make_task(config, directories, texts, len(train[0].scores))
    check_scores(task, [*train, *validation])
    check_differences(config, task, train)
    if not task.scores_per_group:  # the loss does not read scores
        train, validation = (
            [dataclasses.replace(group, scores=()) for group in part] for part in (train, validation)
        )
    if validation and not any(has_other_positive(group) for group in validation):
        print_notice("every validation text is its own positive, so there is no validation during training")
        validation = []
    groups = [*train, *validation]
    teaches = with_teacher and bool(task.teacher_shape)
    vectors = compute_teacher_vectors(directories[config.loss.teacher], groups, task) if teaches else []
    truncated = TruncationCounter(config.data.max_length)
    encode = partial(encode_groups, task, tokenizer, truncated, number_texts(groups), vectors)
    train_windows, validation_windows = encode(train), encode(validation)
    if notice := truncated.notice("raise --config.data.max_length to read more"):
        print_notice(notice)
    width = task.layout.config.hidden_size
    init, made = directories[config.init].layout.text_settings, task.layout.text_settings
    config = config.resolve_start(type(init) is type(made), width)
    config = config.resolve_defaults(len(train), task.best_metric if validation else "", width)
    about = describe_groups(config, task, len(train), len(validation))
    task = dataclasses.replace(task, model_card=make_card(task, config, about, truncated))
    shares = config.data.mixture_weights or tuple(float(len(groups)) for groups in sets)
    batches = make_batch_config(
        config, config.data.batching, config.data.max_length, task.layout.config,
        group_size=texts, sets=tuple(zip(map(len, sets), shares, strict=True)), noun="text", about=about,
    )  # fmt: skip
    evaluator = task.make_evaluator(validation)
    data = Epochs(
        train_windows, validation_windows, task.targets, tokenizer, batches, evaluator, task.each_token
    )
    return task, data, config


def outline_groups(
    config: C,
    directories: ModelDirectories,
    preview: Callable[[C, ModelDirectories], tuple[T, Epochs, C]],
    make_task: Callable[[C, ModelDirectories, int, int], T],
) -> Outline:
    """Return the outline of a run on the config's data.

    Without data, groups are the smallest that the loss can learn from, with one text per row, all of maximum length.
    """
    if any(config.data.train):
        return make_outline(*preview(config, directories))
    config = config.resolve_length(directories[config.init].layout)
    loss = config.loss.losses[USUAL if config.loss.name == "auto" else config.loss.name]
    sizes = (
        (texts, scores)
        for texts in range(1, 4)
        for scores in range(texts)
        if loss.fits(texts, scores) and (scores > 0) == loss.scored
    )
    task = make_task(config, directories, *next(sizes))
    groups, longest = config.batch_size, config.data.max_length
    rows = task.texts_per_group * groups
    print_once(
        f"no data (--config.data.train): assuming groups of {task.texts_per_group} texts, each in a row of "
        f"{longest} tokens"
    )
    resolved = config.resolve_defaults(groups, task.best_metric, task.layout.config.hidden_size)
    phase = OutlinePhase(longest, 1.0, task.features(rows, longest))
    return Outline(task, resolved, groups, rows, (phase,), max(config.steps, 0))


def read_group_splits(config: GroupsRunConfig) -> tuple[list[list[Group]], list[Group]]:
    """Return the training groups, as a list for each file, and the validation groups."""
    data = config.data
    sets = [read_groups(spec, data.columns, data.max_examples) for spec in data.train]
    if data.validation:
        validation = read_groups(data.validation, data.columns)
    else:
        sets, validation = split_by_document(config, sets)
    check_shapes([groups[0] for groups in [*sets, validation]])
    repeated = sum(
        count - 1 for count in Counter(group.texts for groups in sets for group in groups).values()
    )
    if repeated:
        print_notice(f"{repeated:,} of {sum(map(len, sets)):,} training rows are duplicates of others")
    return sets, validation


def split_by_document(
    config: GroupsRunConfig, sets: Sequence[Sequence[Group]]
) -> tuple[list[list[Group]], list[Group]]:
    """Set a share of the documents aside for validation; documents are counted across all files."""
    _, validation = train_validation_split(
        [group for groups in sets for group in groups], config.data.validation_ratio
    )
    drawn = set(map(id, validation))
    kept = [[group for group in groups if id(group) not in drawn] for groups in sets]
    for spec, groups in zip(config.data.train, kept, strict=True):
        if not groups:
            raise BertJaxError(
                f"{spec}: all of its documents are in the validation set; add more, or name another validation set, "
                "--config.data.validation=FILE"
            )
    return kept, validation


def make_embedding_task(
    config: Config, directories: ModelDirectories, texts: int, scores: int
) -> EmbeddingTask:
    wanted = config.loss
    loss, settings = choose_loss(config, texts, scores)
    layout = embedder_layout(config, directories[config.init].layout)
    check_dimensions(loss, wanted.sizes, layout.vector_size)
    if wanted.learn_scale and not loss.in_batch:
        able = ", ".join(name for name, loss in EMBEDDING_LOSSES.items() if loss.in_batch)
        raise BertJaxError(f"loss.name={loss.name} does not learn its scale; losses that do: {able}")
    if wanted.learn_scale and settings.scale > MAX_SCALE:
        raise BertJaxError(
            f"loss.scale={settings.scale:g} is too high for loss.learn_scale to start from; set {MAX_SCALE:g} or "
            "less"
        )
    taught = teacher_shape(config, directories, loss, texts)
    if loss.full_vectors and taught[1] != layout.vector_size:
        raise BertJaxError(
            f"the vectors of {wanted.teacher} have {taught[1]} dimensions, but those of {config.init} have "
            f"{layout.vector_size}; set --config.model.dimensions={taught[1]}"
        )
    return EmbeddingTask(
        layout, loss, settings, wanted.sizes, texts, scores * loss.scored, taught, wanted.learn_scale
    )


def choose_loss(
    config: GroupsRunConfig, texts: int, scores: int
) -> tuple[EmbeddingLoss, EmbeddingLossSettings]:
    """Return the loss of groups of so many texts and scores, and its settings."""
    wanted, losses = config.loss, config.loss.losses
    fitting = [name for name, loss in losses.items() if loss.fits(texts, scores)]
    name = wanted.name
    if name == "auto":
        usual = ("cosent", "teacher_ranking", USUAL) if scores else (USUAL,)
        name = next(name for name in usual if name in fitting)
    if name not in fitting:
        raise BertJaxError(
            f"loss.name={name} does not accept rows of {texts} texts and {scores} scores, which "
            f"{config.data.train[0]} has; losses that do: {', '.join(fitting)}"
        )
    loss = losses[name]
    for setting in ("scale", "margin", "symmetric"):
        if getattr(wanted, setting) and setting not in loss.reads:
            able = ", ".join(name for name, loss in losses.items() if setting in loss.reads) or "none"
            raise BertJaxError(f"loss.name={name} does not use loss.{setting}; losses that do: {able}")
    scale, margin = wanted.scale or loss.scale, wanted.margin or loss.margin
    return loss, EmbeddingLossSettings(scale, margin, wanted.symmetric, wanted.by_dot)


def refuse_scored_pairs(config: GroupsRunConfig, texts: int, scores: int, noun: str) -> None:
    if config.loss.name == "auto" and pair_scores(texts, scores):
        raise BertJaxError(
            f"{config.data.train[0]} has pairs with scores, which {noun} do not learn from; train a dense one with "
            "configs/embed.py, or set --config.loss.name=multiple_negatives to leave the scores out"
        )


def teacher_shape(
    config: GroupsRunConfig, directories: ModelDirectories, loss: EmbeddingLoss, texts: int
) -> tuple[int, ...]:
    """Return the shape of the teacher's vectors for a group of so many texts; () if the loss does not read any."""
    if not loss.teacher_texts:
        return ()
    taught = texts if loss.teacher_texts < 0 else loss.teacher_texts
    return taught, directories[config.loss.teacher].layout.vector_size


def check_dimensions(loss: EmbeddingLoss, sizes: Sequence[int], width: int) -> None:
    """Refuse sizes that the vectors cannot be truncated to, or that the loss cannot learn from."""
    if unfit := [size for size in sizes if not 0 < size <= width]:
        raise BertJaxError(
            f"loss.sizes holds {unfit[0]}, but the vectors have {width} dimensions; set --config.loss.sizes from 1 to "
            f"{width}"
        )
    odd = [size for size in sizes or (width,) if size % 2]
    if loss.even and odd:
        raise BertJaxError(
            f"loss.name={loss.name} needs an even number of dimensions, not {odd[0]}; set even --config.loss.sizes, or "
            "--config.loss.name=cosent"
        )


def embedder_layout(config: Config, source: Layout) -> Layout:
    """Return the layout of the encoder of `source`, without heads, which pools as the config says."""
    source = source.computed_with(**config.model.compute_settings)
    source_embedder = source.embedder or EmbedderSettings()
    pooling = source_embedder.pooling if config.model.pooling == "auto" else config.model.pooling
    if source_embedder.unknown or pooling not in POOLING_WEIGHTS:
        raise BertJaxError(
            f"{config.init} embeds by {source_embedder.unknown or pooling}, which cannot be trained here; set "
            f"--config.model.pooling to one of {', '.join(POOLING_WEIGHTS)}"
        )
    normalize = (
        source_embedder.normalize if config.model.normalize == "auto" else config.model.normalize == "yes"
    )
    encoder = config.model.update_encoder(source.config, config.data.max_length, config.init)
    projection, width = source_embedder.projection, config.model.dimensions
    if width and width != source.vector_size:
        if projection:
            raise BertJaxError(
                f"{config.init} already has a dense layer, which makes vectors of {projection.width} dimensions; leave "
                f"--config.model.dimensions={width} out, or set --config.loss.sizes={width} to truncate them"
            )
        projection = Projection(width)
    embedder = dataclasses.replace(
        source_embedder,
        pooling=pooling,
        normalize=normalize,
        **choose_text_settings(config, source_embedder),
        similarity=EmbedderSettings.similarity,  # all losses are based on cosines
        projection=projection,
    )
    layout = dataclasses.replace(source, config=encoder, heads=(), labels=(), pooler=False)
    return layout.embedding_with(embedder)


def choose_text_settings(config: GroupsRunConfig, source: TextSettings) -> dict[str, Any]:
    """Return the length and the prompts of the model that a run makes; `source` are the settings of its start."""
    configured = dataclasses.asdict(config.prompts)
    prompts = configured if any(configured.values()) else source.prompts
    return {
        "max_length": max(config.data.max_length, source.max_length or 0),
        "prompts": prompts,
        "default_prompt": source.default_prompt if source.default_prompt in prompts else None,
    }


def check_scores(task: EmbeddingTask, groups: Sequence[Group]) -> None:
    """Refuse scores that the loss cannot learn from."""
    allowed = {"cosine": (-1.0, 1.0), "contrastive": (0.0, 1.0)}
    low, high = allowed.get(task.loss.name, (-np.inf, np.inf))
    for group in groups:
        for score in group.scores:
            if not low <= score <= high:
                raise BertJaxError(
                    f"{group.where}: the score {score:g} is not between {low:g} and {high:g}, which "
                    f"loss.name={task.loss.name} requires; divide the scores by their range, or set "
                    "--config.loss.name=cosent"
                )


def check_differences(config: GroupsRunConfig, task: EmbeddingTask, train: Sequence[Group]) -> None:
    """Refuse groups that cannot change the model, because the loss finds no other group to compare them with."""
    loss = task.loss
    needs_others = loss.ordered or (loss.in_batch and task.texts_per_group == 2)
    if needs_others and config.data.batch_size == 1:
        raise BertJaxError(
            f"loss.name={loss.name} compares the groups of a step, so nothing is learnt with data.batch_size=1; set "
            "--config.data.batch_size to 2 or more"
        )
    if loss.ordered and len({group.scores for group in train}) == 1:
        raise BertJaxError(
            f"all scores are {train[0].scores[0]:g}, and loss.name={loss.name} learns from their order; give pairs "
            "with different scores, or remove the column of scores if all pairs belong together"
        )
