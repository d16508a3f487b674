"""The configs and the task of embedders: texts that belong together get similar vectors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np

from bert_jax.core.config import NonNegative, OneOf, Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.terminal import pluralize
from bert_jax.data.batch_source import Fact, Features
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.data.examples.groups import Group
from bert_jax.data.examples.row_packing import INDEX, RowLayout, Target
from bert_jax.finetuning.encoded_windows import gather_by_example
from bert_jax.finetuning.epochs_config import GoingOnConfig, InitEncoderConfig, check_validation
from bert_jax.finetuning.inspect_examples import format_groups
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import PROJECTION, EmbedderSettings
from bert_jax.inference.exact_search import search_exact
from bert_jax.losses.embedding import (
    EMBEDDING_LOSSES,
    EmbeddingLoss,
    EmbeddingLossSettings,
    false_negatives,
    matryoshka_loss,
)
from bert_jax.losses.loss import Loss, weighted_loss
from bert_jax.metrics import retrieval
from bert_jax.metrics.regression import score_correlations
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.models.pooling import l2_normalize, pool_texts, project
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import ENCODER_INPUTS, Tokenizer
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.parameter_rules import ParameterRule, Rules
from bert_jax.training.processes import print_once
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir

MAX_LENGTH = 256  # tokens of a text that training reads unless it is told otherwise
VECTORS, SCALE, TEACHER = "vectors", "scale", "teacher"
MAX_SCALE = 100.0  # of a learnt scale; training at a higher one was found unstable
# The logarithm of the scale moves this many times as fast as a weight; at a weight's rate it would hardly move.
SCALE_SPEED = 25.0
EncodedText = tuple[Encoding, dict[str, Any]]  # a text and the targets of its tokens


@dataclass(frozen=True)
class GroupsConfig:
    # training data: files, folders of files, or tfds:NAME/CONFIG:SPLIT; each step takes its groups from one of them
    train: tuple[str, ...] = ()
    # share of the steps that each training file gets; (): in proportion to its number of groups
    mixture_weights: Annotated[tuple[float, ...], Range(0, 1e6, exclusive_minimum=True)] = ()
    validation: str = ""  # validation set, in the same form as data.train; "": a share of the training data
    validation_ratio: Share = 0.1  # share of the training data, by document, that becomes the validation set
    columns: GroupColumns = field(default_factory=GroupColumns)
    # number of groups to use from each training file, drawn at random, the same for every seed; 0: all
    max_examples: NonNegative = 0
    # groups per step; the texts of other groups are negatives (multiple_negatives, guided)
    batch_size: Annotated[int, Range(1, 1 << 20)] = 64
    # maximum number of tokens in a text; longer ones are truncated; 0: as many as `init` reads, but at most 256
    max_length: Annotated[int, Range(0, 1 << 20)] = 0
    # how texts are put into rows; packed: several per row; bucketed: one per row, rows as long as the longest of the
    # step; padded: one per row, all rows of one length; the choice does not change what is learnt
    batching: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        if self.mixture_weights and len(self.mixture_weights) != len(self.train):
            raise BertJaxError(
                f"data.mixture_weights holds {len(self.mixture_weights)} numbers, but data.train names "
                f"{len(self.train)} files; give one number for each file"
            )
        check_validation(self.validation, self.validation_ratio)


@dataclass(frozen=True)
class EmbedderConfig(InitEncoderConfig):
    """How the encoder computes, and how texts become vectors; "auto" keeps what the directory says."""

    # how hidden states are pooled into the vector of a text; auto: as in `init`, else their mean
    pooling: Literal["auto", "mean", "cls", "mean_sqrt_len", "weighted_mean", "last"] = "auto"
    # whether vectors are scaled to length 1; auto: as in `init`
    normalize: Literal["auto", "yes", "no"] = "auto"
    # dimensions of the vectors, set by a dense layer after the pooling; 0: as in `init`
    dimensions: NonNegative = 0


@dataclass(frozen=True)
class PromptsConfig:
    """The text to put before texts; the finished model offers both prompts by their names."""

    # text to put before anchors, such as "query: "; if both prompts are "", those of `init`
    query: str = ""
    document: str = ""  # text to put before all other texts; if both prompts are "", those of `init`


@dataclass(frozen=True)
class GroupLossConfig:
    """The loss of groups of texts; each kind of embedder has its own `losses`."""

    losses: ClassVar[dict[str, EmbeddingLoss]]
    by_dot: ClassVar[bool] = False  # whether they compare by inner products

    name: str = "auto"
    # factor of similarities, 1 / temperature; 0: the usual one of the loss
    scale: Annotated[float, Range(0, 1e6)] = 0.0
    # margin of losses that have one; 0: the usual one of the loss
    margin: Annotated[float, Range(0, 1e6)] = 0.0
    # train in both directions: positives also find their anchors (multiple_negatives)
    symmetric: bool = False
    teacher: str = ""  # directory of the embedder that guided and teacher_vectors learn from

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.teacher and not any(loss.teacher_texts for loss in self.losses.values()):
            raise BertJaxError(
                "no loss of this task learns from the vectors of a teacher; leave loss.teacher out, and give scores in "
                "the data"
            )
        if self.name == "auto":
            if self.teacher:
                taught = " or ".join(name for name, loss in self.losses.items() if loss.teacher_texts)
                raise BertJaxError(
                    f"loss.teacher is for loss.name={taught}; name one of them, or leave it out"
                )
            return
        check_name(self.name, self.losses, "loss")
        loss = self.losses[self.name]
        if self.teacher and not loss.teacher_texts:
            raise BertJaxError(f"loss.name={self.name} does not use loss.teacher; leave it out")
        if loss.teacher_texts and not self.teacher:
            raise BertJaxError(
                f"loss.name={self.name} needs a teacher; name the directory of an embedder, --config.loss.teacher=DIR"
            )


@dataclass(frozen=True)
class EmbeddingLossConfig(GroupLossConfig):
    losses: ClassVar[dict[str, EmbeddingLoss]] = EMBEDDING_LOSSES

    # loss; auto: cosent for pairs with a score, teacher_ranking for more texts with scores, else multiple_negatives
    name: Annotated[str, OneOf(("auto", *EMBEDDING_LOSSES))] = "auto"
    learn_scale: bool = False  # train the scale, starting from loss.scale (multiple_negatives, guided)
    # numbers of leading dimensions that also work as vectors (Matryoshka); (): only the full width
    sizes: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if self.name in self.losses and self.losses[self.name].full_vectors and self.sizes:
            raise BertJaxError(f"loss.name={self.name} compares whole vectors; leave loss.sizes out")


@dataclass(frozen=True)
class GroupsRunConfig(GoingOnConfig):
    """What the runs that learn from groups of texts have in common."""

    default_epochs: ClassVar[float] = 1.0
    base_learning_rate: ClassVar[float] = 3e-5  # for a model as wide as BERT-base
    usual_share: ClassVar[float] = -1.0

    init: str = ""
    model: InitEncoderConfig = field(default_factory=InitEncoderConfig)
    loss: GroupLossConfig = field(default_factory=GroupLossConfig)
    data: GroupsConfig = field(default_factory=GroupsConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)

    @property
    def example_columns(self) -> ExampleColumns:
        return self.data.columns.pair_columns

    @property
    def slow_to_open(self) -> bool:
        return bool(self.loss.teacher)

    def resolve_length(self, init: Layout) -> Self:
        """Return the config with the number of tokens that texts are read up to."""
        if self.data.max_length:
            return self
        settings = init.text_settings
        most = (settings and settings.max_length) or init.config.max_position_embeddings
        length = min(most, MAX_LENGTH)
        print_once(
            f"texts are read up to {pluralize(length, 'token')}; {self.init} reads {most:,}, and "
            "--config.data.max_length sets another number"
        )
        return replace(self, data=replace(self.data, max_length=length))


@dataclass(frozen=True)
class EmbedConfig(GroupsRunConfig):
    model: EmbedderConfig = field(default_factory=EmbedderConfig)
    loss: EmbeddingLossConfig = field(default_factory=EmbeddingLossConfig)


@dataclass(frozen=True)
class EmbeddingTask(Task[Epochs]):
    loss: EmbeddingLoss = EMBEDDING_LOSSES["multiple_negatives"]
    settings: EmbeddingLossSettings = EmbeddingLossSettings(20.0, 0.0, False)
    sizes: tuple[int, ...] = ()
    texts_per_group: int = 2  # per group
    scores_per_group: int = 0  # the number of scores per group that the loss learns from
    # shape of the teacher's vectors for a group; (): the loss does not read any
    teacher_shape: tuple[int, ...] = ()
    learns_scale: bool = False
    each_token: ClassVar[bool] = False  # whether predictions are those of tokens
    whole_batch: ClassVar[bool] = True
    rules: ClassVar[Rules] = [(f"^{SCALE}/growth$", ParameterRule(decays=False))]

    @property
    def best_metric(self) -> str:
        return "spearman" if self.learns_similarity else retrieval.MAIN_METRIC

    @property
    def learns_similarity(self) -> bool:
        """Whether the similarity of two texts is trained and measured, rather than which texts belong together."""
        return self.texts_per_group == 2 and self.scores_per_group == 1

    @property
    def embedder(self) -> EmbedderSettings:
        assert self.layout.embedder
        return self.layout.embedder

    def encode_texts(
        self, tokenizer: Tokenizer, texts: Sequence[str], n: int, most: int
    ) -> list[EncodedText]:
        """Encode the n-th texts of groups, each as at most `most` tokens, with the targets of their tokens."""
        return [(encoding, {}) for encoding in tokenizer.encode(texts, max_length=most)]

    def make_evaluator(self, groups: Sequence[Group]) -> "EmbeddingEvaluator":
        return EmbeddingEvaluator(groups, self.learns_similarity)

    @property
    def targets(self) -> dict[str, Target]:
        """The targets of a text; the scores of a group are those of its first text."""
        targets = {"ids": Target("int32"), "label_weights": Target("float32"), INDEX: Target("int32")}
        if self.scores_per_group:
            targets["scores"] = Target("float32", (self.scores_per_group,))
        if self.teacher_shape:
            targets[TEACHER] = Target("float32", self.teacher_shape[1:])
        return targets

    def init(self, key) -> dict:
        scale = {SCALE: {"growth": jnp.zeros(())}} if self.learns_scale else {}
        return super().init(key) | scale

    def features(self, rows: int, length: int) -> Features:
        """Shape and type of the arrays of a batch that has one text per row."""
        of_tokens = {name: ((rows, length), np.dtype("int32")) for name in ENCODER_INPUTS}
        of_texts = {
            name: ((rows, length) if target.each_token else (rows, *target.shape), np.dtype(target.dtype))
            for name, target in self.targets.items()
        }
        return of_tokens | of_texts

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Return the vectors of the texts, [B, D], or [B, P, D] if rows hold several, and the learnt scale."""
        hidden = super().outputs(params, batch, constants, key)["hidden"]
        vectors = pool_texts(hidden, batch, self.embedder.pooling)
        if projection := self.embedder.projection:
            vectors = project(vectors, params[PROJECTION]["dense"], projection.activation)
        if self.embedder.normalize:
            vectors = l2_normalize(vectors)
        outputs = {VECTORS: vectors.reshape(*batch["label_weights"].shape, -1)}
        if self.learns_scale:
            scale = self.settings.scale * jnp.exp(SCALE_SPEED * params[SCALE]["growth"])
            outputs[SCALE] = jnp.broadcast_to(jnp.minimum(scale, MAX_SCALE), batch["label_weights"].shape)
        return outputs

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        vectors, groups = self.gather_groups(outputs, batch)
        return {
            "embedding_loss": matryoshka_loss(self.loss.compute, self.sizes)(vectors, groups, self.settings)
        }

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        _, groups = self.gather_groups(outputs, batch)
        scores = {}
        if self.loss.in_batch:
            scores["false_negatives"] = false_negatives(groups)
        if self.learns_scale:
            scores[SCALE] = weighted_loss(groups[SCALE], groups["label_weights"])
        return scores

    def gather_groups(self, outputs: dict, batch: dict) -> tuple[Any, dict]:
        """Return the vectors [N, T, D] of the groups of all rows, and the other arrays by group."""
        groups = gather_targets(outputs, batch, self.texts_per_group, *self.teacher_shape[:1])
        vectors = gather_by_example(outputs[VECTORS].astype(jnp.float32), batch, self.texts_per_group)
        # A group that is padding has zero vectors, at which some losses have no finite gradient.
        return jnp.where(groups["label_weights"][:, None, None] > 0, vectors, 1.0), groups

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        yield "loss", self.loss.name

    def show_step(self, data: Epochs, step: int, rows: int) -> str:
        return format_groups(data, step, rows, self.texts_per_group)

    def predictions(self, outputs: dict, batch: dict):
        return l2_normalize(outputs[VECTORS])


@dataclass(frozen=True)
class EmbeddingEvaluator:
    """Computes metrics from the vectors of the validation groups' texts; None stands for those not computed."""

    groups: Sequence[Group]
    learns_similarity: bool

    def __call__(self, vectors: list) -> ScoreSums | None:
        following = iter(vectors)
        group_vectors = [[next(following) for _ in group.texts] for group in self.groups]
        measured_groups = [
            (v, group) for v, group in zip(group_vectors, self.groups, strict=True) if v[0] is not None
        ]
        if not measured_groups:
            return None
        measured, groups = [v for v, _ in measured_groups], [group for _, group in measured_groups]
        if self.learns_similarity:
            cosines = [float((v[0] * v[1]).sum()) for v in measured]
            return score_correlations(cosines, [group.scores[0] for group in groups])
        return score_retrieval(measured, groups, self.stack, self.measure)

    def stack(self, vectors: list) -> Any:
        return np.stack(vectors)

    def measure(self, queries: Any, documents: Any) -> dict[str, Any]:
        """Return what else to measure of the vectors that are ranked."""
        return {}


def gather_targets(outputs: dict, batch: dict, texts_per_group: int, teacher_texts: int = 0) -> dict:
    """Return what losses read beside vectors, by group; a teacher's vectors are those of the first texts of a group."""

    def gather(values):
        return gather_by_example(values, batch, texts_per_group)

    groups = {"label_weights": gather(batch["label_weights"])[:, 0], "ids": gather(batch["ids"])}
    if "scores" in batch:
        groups["scores"] = gather(batch["scores"])[:, 0]
    if TEACHER in batch:
        groups[TEACHER] = gather(batch[TEACHER])[:, :teacher_texts]
    if SCALE in outputs:
        groups[SCALE] = gather(outputs[SCALE])[:, 0]
    return groups


def has_other_positive(group: Group) -> bool:
    """Whether the anchor has a text to find other than itself."""
    return group.texts[1] != group.texts[0]


def score_retrieval(
    vectors: Sequence,
    groups: Sequence[Group],
    stack: Callable[[list], Any] = np.stack,
    measure: Callable[[Any, Any], dict[str, Any]] = lambda queries, documents: {},
) -> ScoreSums:
    """Score how well anchors retrieve their positives from the positives and negatives of all groups.

    An anchor that is its own positive is not used as a query. `stack` joins vectors of texts; `measure` gets those of
    all queries and of all documents, and its scores are added.
    """
    documents: dict[str, Any] = {}
    queries: dict[str, Any] = {}
    relevant: dict[str, dict[str, int]] = {}
    names: dict[str, set[str]] = {}  # label -> its texts, for labelled texts
    for of_group, group in zip(vectors, groups, strict=True):
        documents |= dict(zip(group.texts[1:], of_group[1:], strict=True))
        if not has_other_positive(group):
            continue
        queries[group.texts[0]] = of_group[0]
        relevant.setdefault(group.texts[0], {})[group.texts[1]] = 1
        names.setdefault(group.shared_label, set()).add(group.texts[1])
    for group in groups:
        if group.shared_label:
            relevant[group.texts[0]] = dict.fromkeys(names[group.shared_label] - {group.texts[0]}, 1)
    ids = list(documents)
    sides = stack(list(queries.values())), stack(list(documents.values()))
    best = search_exact(*sides, ids)
    given = [
        [ids[i] for i in indices if ids[i] != query] if ids else []
        for query, (indices, _) in zip(queries, best, strict=True)
    ]
    ranked, more = retrieval.ranking_metrics(given, [relevant[query] for query in queries]), measure(*sides)
    return ScoreSums(ranked.rows, lambda sums: ranked.compute_scores(sums) | more)
