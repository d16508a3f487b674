"""Make the task and the data of a fine-tuning run from its config."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.columns import source_labels
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.finetuning.encoded_windows import PredictionEvaluator, make_batch_config, make_encoded_windows
from bert_jax.finetuning.example_splits import ExampleSplits, Reader, split_examples
from bert_jax.finetuning.finetune_config import ExamplesConfig, FinetuneConfig
from bert_jax.finetuning.finetune_task import ContrastiveTask, FinetuneTask
from bert_jax.finetuning.label_descriptions import AUTO, describe_labels, encode_descriptions
from bert_jax.finetuning.model_cards import prediction_card
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.models.heads import HEADS
from bert_jax.predictions.example_reader import TextWindows
from bert_jax.predictions.kind import Kind, require_kind
from bert_jax.predictions.prediction_input import read_out_of_scope
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.task import FinishInputs

C = TypeVar("C", bound=FinetuneConfig)


def open_data(
    config: C,
    init: ModelDirectory,
    labels: Sequence[str] = (),
    smoothing: float = 0.0,
    balanced: bool = False,
    read_examples: Reader | None = None,
) -> tuple[FinetuneTask, Epochs, C]:
    """Return the task, its data and the resolved config; `init` is the opened directory of the config.

    `labels` are in the order of the model's outputs; (): those of the data. With `balanced`, each class has the same
    total weight.
    """
    parts = split_examples(config, read_examples)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, folds=parts.folds))
    task = make_finetune_task(config, init, parts, labels, smoothing, balanced)
    given = config.label_descriptions
    if given != AUTO or parts.folds:
        described = describe_labels(given, task.kind, parts.train)
        most = task.layout.config.max_position_embeddings
        encoded = encode_descriptions(described, task.kind, init.tokenizer, most)
        task = dataclasses.replace(task, descriptions=encoded)
    train = encode_windows(task, init.tokenizer, config.data, parts.train, "training")
    validation = encode_windows(task, init.tokenizer, config.data, parts.validation, "validation")
    encoded_windows = make_encoded_windows(task.kind.targets, parts.train, train)
    measured = not parts.folds and config.method != "contrastive"  # which fits its head at the end of the run
    best_metric = task.best_metric if measured else ""
    config = config.resolve_defaults(len(encoded_windows), best_metric, task.layout.config.hidden_size)
    return task, make_epochs(config, task, init.tokenizer, parts, encoded_windows, validation), config


def make_finetune_task(
    config: FinetuneConfig,
    init: ModelDirectory,
    parts: ExampleSplits,
    labels: Sequence[str],
    smoothing: float,
    balanced: bool,
) -> FinetuneTask:
    data = config.data
    everything = [*parts.train, *parts.validation] if data.fold_index >= 0 else parts.train
    kind = config.prediction_kind.from_examples(everything, labels or source_labels(data.train, data.columns))
    kind.targets.check([*parts.validation, *parts.calibration])
    pairs = all(isinstance(example.text, tuple) for example in parts.train)
    layout = layout_with_head(config, init.layout, kind, pairs)
    if data.fold_index < 0 and (notice := describe_own_head(config, layout)):
        print_once(notice)
    weights = balanced_class_weights(kind, parts.train) if balanced else ()
    out_of_scope = read_out_of_scope(data.out_of_scope, data.columns, kind) if data.out_of_scope else []
    inputs = FinishInputs(
        parts.train, parts.validation, parts.calibration, data.long_texts, out_of_scope, data.max_length
    )
    make = ContrastiveTask if config.method == "contrastive" else FinetuneTask
    card = prediction_card(layout, kind, data, parts.train, describe_data(data, parts))
    probes = config.head_init == "linear_probe"
    return make(layout, kind, smoothing, weights, probes, finish_inputs=inputs, model_card=card)


def make_epochs(
    config: FinetuneConfig,
    task: FinetuneTask,
    tokenizer: Tokenizer,
    parts: ExampleSplits,
    train: Sequence[EncodedWindow],
    validation: Sequence[TextWindows],
) -> Epochs:
    data = config.data
    held = make_encoded_windows(task.kind.targets, parts.validation, validation)
    evaluator = PredictionEvaluator(task.kind, parts.validation, validation)
    # All folds have rows of the same lengths, so that they can share one compiled step.
    lengths = sorted(map(len, [*train, *held] if data.fold_index >= 0 else train)) if parts.folds else ()
    # Validation examples are then predicted only at the end of the run.
    if data.fold_index >= 0 or config.method == "contrastive":
        held, evaluator = [], PredictionEvaluator(task.kind, [], [])
    paired = train if config.method == "contrastive" else []
    batches = make_batch_config(
        config,
        data.batching,
        data.max_length,
        task.layout.config,
        lengths=tuple(lengths),
        paired_classes=tuple(int(window.targets["labels"]) for window in paired),
        noun="window" if len(train) > len(parts.train) else "example",
        about=describe_data(data, parts, len(train)),
    )
    each_token = HEADS[task.head].each_token
    return Epochs(train, held, task.kind.targets.arrays, tokenizer, batches, evaluator, each_token)


def describe_data(data: ExamplesConfig, parts: ExampleSplits, windows: int = 0) -> str:
    """Describe the parts of the data, and the number of windows in which its training examples are read, if known."""
    beside = f"{len(parts.validation):,} for validation, {len(parts.calibration):,} for calibration"
    if parts.folds:
        beside = (
            f"{parts.folds} folds"
            if data.fold_index < 0
            else f"without fold {data.fold_index + 1} of {parts.folds}"
        )
    whole = f" in {pluralize(windows, 'window')}" if windows > len(parts.train) else ""
    return f"{data.train}: {pluralize(len(parts.train), 'example')}{whole} to train on, {beside}"


def layout_with_head(config: FinetuneConfig, source: Layout, kind: Kind, pairs: bool) -> Layout:
    """Return the layout of the encoder of `source` with a head for these predictions, and their keys in config.json;
    `pairs` says whether all examples are pairs of texts."""
    layout = source.computed_with(**config.model.compute_settings)
    layout = layout.with_head(choose_head(config, source, kind, pairs), kind.labels)
    encoder = config.model.update_encoder(layout.config, config.data.max_length, config.init)
    if config.model.head_dropout >= 0:
        encoder = encoder.replace(**{HEADS[layout.heads[-1]].dropout: config.model.head_dropout})
    layout = dataclasses.replace(layout, config=encoder, hf_config=layout.hf_config | kind.hf_config_keys)
    # `require_kind` will open the finished model; a kind that it does not know is refused here, before the run.
    require_kind(layout)
    return layout


def describe_own_head(config: FinetuneConfig, layout: Layout) -> str:
    """Say what the head reads if that was chosen for the user, and transformers has no class for it; otherwise ""."""
    head = HEADS[layout.heads[-1]]
    there = "transformers opens the model with trust_remote_code=True"
    if head.compares and config.model.pair_encoding == "auto":
        return (
            f"the two texts of a pair are encoded separately and compared, and {there}; if they are parts of one text, "
            "such as subject and body, set --config.model.pair_encoding=cross_encoder"
        )
    if head.reads in ("mean", "cls") and config.model.pooling == "auto":
        return (
            f"the head reads the {head.reads} state of a text, as {config.init} pools, and {there}; "
            "--config.model.pooling=native keeps the family's own head"
        )
    return ""


def choose_head(config: FinetuneConfig, source: Layout, kind: Kind, pairs: bool) -> str:
    """Return the head of this kind that reads what `model.pooling` and `model.pair_encoding` name.

    By default it reads what an embedder pools, or what one of the heads of `source` reads.
    """
    asked = config.model.pair_encoding
    # The texts of a pair then have to be in one sequence.
    needs_both = config.method == "contrastive" or config.data.long_texts == "windows"
    may_compare = pairs and (asked == "bi_encoder" or asked == "auto" and not needs_both)
    fitting = [head for head in kind.heads if may_compare or not HEADS[head].compares]
    pooling: str = config.model.pooling
    if pooling == "auto":
        embedder = source.embedder
        known = next((head for head in source.heads if head in fitting), fitting[0])
        compares = may_compare and asked == "bi_encoder"
        if embedder is None and HEADS[known].compares >= compares:
            return known
        pooling = embedder.pooling if embedder else "mean"
    compares = may_compare and (asked == "bi_encoder" or bool(config.data.folds))
    return next(
        (head for head in fitting if HEADS[head].reads == pooling and HEADS[head].compares == compares),
        fitting[0],
    )


def balanced_class_weights(kind: Kind, examples: Sequence[Example]) -> tuple[float, ...]:
    counts = Counter(kind.targets.truth(example) for example in examples)
    return tuple(len(examples) / (len(kind.labels) * max(counts[label], 1)) for label in kind.labels)


def encode_windows(
    task: FinetuneTask, tokenizer: Tokenizer, data: ExamplesConfig, examples: Sequence[Example], what: str
) -> list[TextWindows]:
    """Encode each text, truncated or in windows; say how many are truncated, but not again in each fold."""
    encoding_options = EncodingOptions(
        data.max_length, data.long_texts, data.overlap, HEADS[task.head].compares
    )
    windows = task.kind.reader.encode(tokenizer, [example.text for example in examples], encoding_options)
    if data.fold_index >= 0:
        return windows
    truncated = TruncationCounter(data.max_length)
    truncated.count(text.encodings[0] for text in windows)
    advice = "set --config.data.long_texts=windows to read all of them, or raise data.max_length"
    longest = task.layout.config.max_position_embeddings  # what the trained model can read
    if longest > data.max_length and what == "training":
        advice += f"; predict and evaluate read up to {longest:,} tokens"
    if notice := truncated.notice(advice, f"{what} examples"):
        print_notice(notice)
    return windows
