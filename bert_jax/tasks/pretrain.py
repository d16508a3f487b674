"""Pre-training: predict masked words and, if rows are pairs, whether their halves belong together or are swapped."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, TypeVar

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.core.config import Range, Registered, merge_values
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.batch_source import Fact, Features
from bert_jax.data.corpus.cooccurrences import cooccurrence_embeddings
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.step_preview import show_step
from bert_jax.data.corpus.stream import Stream
from bert_jax.hub.families import FAMILIES, family_for
from bert_jax.hub.family import Family
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories, ModelDirectory
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.losses.loss import Loss, cross_entropy, weighted_loss
from bert_jax.models.cost import pre_training_flops
from bert_jax.models.encoder_config import COMPUTATION_FIELDS, EncoderConfig
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.parameter_rules import Rules
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Outline, OutlinePhase, Task
from bert_jax.training.warm_start import check_same_tokenizer, check_sizes
from bert_jax.training.workdir import Workdir


@dataclass(frozen=True)
class CorporaConfig(RunConfig):
    # number of updates; 0: none, the run evaluates its initial parameters; -1: three passes over the corpora, but at
    # least 100 steps
    steps: Annotated[int, Range(-1)] = 1_000_000
    data: DataConfig = field(default_factory=DataConfig)

    def resolve_steps(self) -> Self:
        """Return the config with the number of steps that follows from its corpora. A tenth of it lies at most between
        evaluations."""
        if self.steps >= 0:
            return self
        data = self.data
        tokens = sum(Corpus(path).manifest["counts"]["train"]["tokens"] for path in data.corpora)
        length = float(np.average(data.lengths, weights=data.length_ratios))
        steps = max(math.ceil(PASSES * tokens / (data.batch_size * length)), MIN_STEPS)
        log = dataclasses.replace(self.log, evaluate_every=min(self.log.evaluate_every, steps // 10))
        every = min(self.checkpoints.every, steps // 10)
        return dataclasses.replace(
            self, steps=steps, log=log, checkpoints=dataclasses.replace(self.checkpoints, every=every)
        )


@dataclass(frozen=True)
class Config(CorporaConfig):
    # family of the saved model; "": that of `init`, else the family that has models of this architecture
    family: Annotated[str, Registered(FAMILIES.names)] = ""
    model: EncoderConfig = field(default_factory=EncoderConfig)
    # initial word embeddings without `init`; random: random numbers; cooccurrences: vectors from the co-occurrences of
    # tokens in the corpora, with their frequencies as output bias, which takes seconds to minutes
    embedding_init: Literal["random", "cooccurrences"] = "random"


C = TypeVar("C", bound=Config)
PASSES, MIN_STEPS = 3, 100  # of a run whose number of steps follows from its corpora
# The heads that can learn from each kind of examples; the first one that the family has is trained. A family without a
# head for sentence order learns it with its next-sentence head: for both, label 1 is a pair that no document contains.
PAIR_HEADS = {"next_sentence": ("nsp",), "sentence_order": ("sop", "nsp"), "none": ()}
WORDS, BIAS = ("embeddings", "words"), ("mlm", "bias")  # the last two keys of the paths of these parameters


def open(config: Config, directories: ModelDirectories) -> tuple["PretrainTask", Stream, Config]:
    config = config.resolve_steps()
    data = Stream(config.data, config.seed, config.steps)
    if config.init:  # first, because its error says what to prepare; that of the sizes would not
        check_same_tokenizer(directories[config.init], data.tokenizer)
    model = fit_vocabulary(config.model, data.tokenizer.size, max(config.data.lengths))
    if config.init:  # first, because this error names the sizes to set; the family's would not
        source = directories[config.init].layout
        check_sizes(config.init, source.config, choose_family(config, source).apply_constants(model))
    task = PretrainTask.from_config(dataclasses.replace(config, model=model), directories)
    if config.init:
        task = dataclasses.replace(task, layout=keep_other_parts(task.layout, directories[config.init]))
    return task, data, config


def complete_values(values: dict, directories: ModelDirectories) -> dict:
    """Return the values of a config with the sizes and dropout rates of `init` where they name none.

    Not the size of the vocabulary, which is that of the corpus.
    """
    model = values.get("model", {})
    if not values.get("init") or not isinstance(model, dict):
        return values
    saved = dataclasses.asdict(directories[values["init"]].layout.config)
    own = {name: value for name, value in saved.items() if name not in (*COMPUTATION_FIELDS, "vocab_size")}
    return values | {"model": merge_values(own, model)}


def keep_other_parts(layout: Layout, directory: ModelDirectory) -> Layout:
    """Return the layout with what no loss reads but the finished model keeps: published keys, the pooler, and how it
    embeds."""
    source = directory.layout
    embedder = source.embedder
    if embedder and embedder.unknown:
        print_notice(f"{directory} embeds by {embedder.unknown}; the model of this run will be no embedder")
        embedder = None
    elif embedder:
        print_notice(
            f"masked words may make the embedder in {directory} a worse one; `bert-jax evaluate --compare` measures it"
        )
    pooler = layout.pooler or source.pooler
    return dataclasses.replace(layout, hf_config=source.hf_config, pooler=pooler, embedder=embedder)


def outline(config: Config, directories: ModelDirectories) -> Outline:
    return outline_task(config, directories, PretrainTask.from_config)


def outline_task(
    config: C, directories: ModelDirectories, task_of: Callable[[C, ModelDirectories], Task]
) -> Outline:
    """Return the outline of the task; if the config names corpora, the model gets the size of their vocabulary."""
    config = config.resolve_steps()
    data = config.data
    if data.corpora:
        vocabulary = Corpus(data.corpora[0]).tokenizer.size
        config = dataclasses.replace(
            config, model=fit_vocabulary(config.model, vocabulary, max(data.lengths))
        )
    return outline_corpora(task_of(config, directories), config)


def outline_corpora(task: Task, config: CorporaConfig) -> Outline:
    """Return the outline of a task whose batches come from corpora."""
    data = config.data
    batch, all_shares = data.batch_size, sum(data.length_ratios)
    phases = (
        OutlinePhase(length, share / all_shares, task.features(batch, length))
        for length, share in zip(data.lengths, data.length_ratios, strict=True)
    )
    return Outline(task, config, batch, batch, tuple(phases), config.steps - config.first_step)


def fit_vocabulary(model: EncoderConfig, vocabulary: int, length: int) -> EncoderConfig:
    """Return the model's config with the vocabulary size of the corpus' tokenizer; refuse a config that sets another
    size, or too few positions."""
    if model.vocab_size not in (vocabulary, EncoderConfig.vocab_size):
        raise BertJaxError(
            f"model.vocab_size is {model.vocab_size}, but the tokenizer of the corpus has {vocabulary} entries; "
            "leave model.vocab_size out, or prepare the corpus with the model's own tokenizer"
        )
    if model.max_position_embeddings < length:
        raise BertJaxError(
            f"data.lengths goes up to {length}, but model.max_position_embeddings is {model.max_position_embeddings}; "
            f"set --config.model.max_position_embeddings={length}, or shorter --config.data.lengths"
        )
    return model.replace(vocab_size=vocabulary)


def choose_family(config: Config, source: Layout | None) -> Family:
    """Return the family of `source`, the model that the run starts from, or else the one that the config asks for."""
    if source is None:
        return FAMILIES[config.family] if config.family else family_for(config.model)
    family = source.family
    if config.family not in ("", family.model_type):
        raise BertJaxError(
            f'the model in {config.init} is of the family "{family.model_type}", not "{config.family}"; '
            f"set --config.family={family.model_type}"
        )
    return family


@dataclass(frozen=True)
class MaskedLMTask(Task[Stream]):
    """Predicts the masked words of prepared corpora; their logits are the output "mlm"."""

    best_metric = "mlm_loss"

    data: DataConfig = DataConfig()
    embedding_init: str = field(default="random", kw_only=True)  # as in the config

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        model, optimizer = self.layout.config, run.config.optimizer
        steps, warmup = run.config.steps, optimizer.num_warmup_steps(run.config.steps)
        advice = (
            f", which the run of {pluralize(steps, 'step')} does not reach; --config.optimizer.warmup_steps=0.1 takes "
            "a tenth of its steps"
        )
        yield (
            "schedule",
            f"a learning rate of {optimizer.learning_rate:g} after {warmup:,} steps of warm-up"
            + advice * (0 < steps <= warmup),
        )
        rows = f"{model.padded_vocab:,} rows of word embeddings for {model.vocab_size:,} entries"
        yield (
            "computes",
            f"in {model.computed_dtype}, with random numbers of {run.config.prng_impl} and {rows}",
        )

    @property
    def initializes_from_data(self) -> bool:
        return self.embedding_init != "random"

    def initial_params(self, params: dict, data: Stream, steps: int) -> dict:
        return initialize_from_cooccurrences(params, data) if self.initializes_from_data else params

    def features(self, rows: int, length: int) -> Features:
        return self.data.features(rows, length)

    def show_step(self, data: Stream, step: int, rows: int) -> str:
        return show_step(data, step, rows)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return {"mlm_loss": cross_entropy(outputs["mlm"], batch["targets"], batch["target_weights"])}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return {"mlm_accuracy": accuracy(outputs["mlm"], batch["targets"], batch["target_weights"])}

    def predictions(self, outputs: dict, batch: dict):
        """The rank of each target, counted from 0, among all entries of the vocabulary; -1 if there is no target."""
        logits, targets = outputs["mlm"], batch["targets"]
        return jnp.where(batch["target_weights"] > 0, (logits > label_logits(logits, targets)).sum(-1), -1)

    def metrics_from_means(self, means: dict[str, float]) -> dict[str, float]:
        return means | {"mlm_perplexity": math.exp(min(means["mlm_loss"], 700))}


@dataclass(frozen=True)
class PretrainTask(MaskedLMTask):
    """Predicts masked words and, if rows are pairs, the label of the pair."""

    @classmethod
    def from_config(cls, config: Config, directories: ModelDirectories) -> "PretrainTask":
        family = choose_family(config, directories[config.init].layout if config.init else None)
        of_pairs = PAIR_HEADS[config.data.sentence_objective]
        pair_head = tuple(head for head in of_pairs if head in family.heads)[:1]
        if of_pairs and not pair_head:
            raise BertJaxError(
                f'data.sentence_objective={config.data.sentence_objective} trains the head "{of_pairs[0]}", which '
                f'models of the family "{family.model_type}" lack; set --config.data.sentence_objective=none'
            )
        layout = Layout(
            family.apply_constants(config.model), family, ("mlm", *pair_head), pooler=bool(pair_head)
        )
        return cls(layout, config.data, embedding_init=config.embedding_init)

    @property
    def frozen(self) -> Rules:
        """What no loss reads would shrink by weight decay."""
        unread = ["pooler"] * (self.layout.pooler and not self.pair_head)
        unread += [PROJECTION] * bool(self.layout.projection)
        return (*((f"^{name}/", True) for name in unread), ("", False)) if unread else ()

    @property
    def pair_head(self) -> str:
        return next((head for head in self.layout.heads if head in ("nsp", "sop")), "")

    def flops(self, rows: int, length: int) -> float:
        return pre_training_flops(self.layout.config, rows, length, self.data.max_targets(length))

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        losses = super().losses(outputs, batch)
        if head := self.pair_head:
            losses[f"{head}_loss"] = cross_entropy(outputs[head], batch["labels"], batch["label_weights"])
        return losses

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        scores = super().scores(outputs, batch)
        if head := self.pair_head:
            scores[f"{head}_accuracy"] = accuracy(outputs[head], batch["labels"], batch["label_weights"])
        return scores


def accuracy(logits, labels, weight) -> Loss:
    """Compare each label's logit with the highest logit, which the loss has already computed; an argmax would take
    another pass over all logits."""
    best = label_logits(logits, labels)[..., 0] >= logits.max(-1)
    return weighted_loss(best.astype(jnp.float32), weight)


def label_logits(logits, labels):
    return jnp.take_along_axis(logits, labels[..., None], axis=-1)


def initialize_from_cooccurrences(params: dict, data: Stream) -> dict:
    """Return the parameters with word embeddings and output bias computed from the corpora."""
    print_once("counting co-occurrences, for the word embeddings")
    flat = flatten_dict(params)
    (words,) = (path for path in flat if path[-2:] == WORDS)
    vectors, frequencies = cooccurrence_embeddings(data.corpora, data.tokenizer.size, flat[words].shape[1])
    table = np.array(flat[words])
    (counted,) = vectors.any(1).nonzero()
    table[counted] = vectors[counted]
    flat[words] = table
    for path in (path for path in flat if path[-2:] == BIAS):
        flat[path] = np.pad(frequencies, (0, len(flat[path]) - len(frequencies)))
    return unflatten_dict(flat)
