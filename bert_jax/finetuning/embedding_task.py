"""The task of an embedder: texts that belong together get similar vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batch_source import BatchSource, Fact, Features
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.groups import Group
from bert_jax.data.examples.row_packing import PLACE, Target
from bert_jax.finetuning.encoded_windows import gather_by_example
from bert_jax.finetuning.inspect_examples import format_groups
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
from bert_jax.metrics.regression import score_numbers
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.models.pooling import l2_normalize, pool_texts, project
from bert_jax.text.tokenizer import ENCODER_INPUTS
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.parameter_rules import ParameterRule, Rules
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir

VECTORS, SCALE, TEACHER = "vectors", "scale", "teacher"
MAX_SCALE = 100.0  # of a learnt scale; training at a higher one was found unstable
# The logarithm of the scale moves this many times as fast as a weight; at a weight's rate it would hardly move.
SCALE_SPEED = 25.0


@dataclass(frozen=True)
class EmbeddingTask(Task):
    loss: EmbeddingLoss = EMBEDDING_LOSSES["multiple_negatives"]
    settings: EmbeddingLossSettings = EmbeddingLossSettings(20.0, 0.0, False)
    sizes: tuple[int, ...] = ()
    texts_per_group: int = 2  # per group
    scores_per_group: int = 0  # the number of scores per group that the loss learns from
    # shape of the teacher's vectors for a group; (): the loss does not read any
    teacher_shape: tuple[int, ...] = ()
    learns_scale: bool = False
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

    @property
    def targets(self) -> dict[str, Target]:
        """The targets of a text; the scores of a group are those of its first text."""
        targets = {"ids": Target("int32"), "label_weights": Target("float32"), PLACE: Target("int32")}
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
            name: ((rows, *target.shape), np.dtype(target.dtype)) for name, target in self.targets.items()
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

    def gather_groups(self, outputs: dict, batch: dict) -> tuple[jax.Array, dict]:
        """Return the vectors [N, T, D] of the groups of all rows, and the other arrays by group."""

        def gather(values):
            return gather_by_example(values, batch, self.texts_per_group)

        groups = {"label_weights": gather(batch["label_weights"])[:, 0], "ids": gather(batch["ids"])}
        if "scores" in batch:
            groups["scores"] = gather(batch["scores"])[:, 0]
        if TEACHER in batch:
            groups[TEACHER] = gather(batch[TEACHER])[:, : self.teacher_shape[0]]
        if SCALE in outputs:
            groups[SCALE] = gather(outputs[SCALE])[:, 0]
        vectors = gather(outputs[VECTORS].astype(jnp.float32))
        # A group that is padding has zero vectors, at which some losses have no finite gradient.
        return jnp.where(groups["label_weights"][:, None, None] > 0, vectors, 1.0), groups

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        yield "loss", self.loss.name

    def show_step(self, data: BatchSource, step: int, rows: int) -> str:
        return format_groups(cast(Epochs, data), step, rows, self.texts_per_group)

    def predictions(self, outputs: dict, batch: dict):
        return l2_normalize(outputs[VECTORS])


@dataclass(frozen=True)
class EmbeddingEvaluator:
    """Computes metrics from the vectors of the validation groups' texts; None stands for those not computed."""

    groups: Sequence[Group]
    learns_similarity: bool

    def __call__(self, vectors: list) -> dict[str, float]:
        following = iter(vectors)
        group_vectors = [[next(following) for _ in group.texts] for group in self.groups]
        measured_groups = [
            (v, group) for v, group in zip(group_vectors, self.groups, strict=True) if v[0] is not None
        ]
        if not measured_groups:
            return {}
        stacked, groups = np.stack([v for v, _ in measured_groups]), [group for _, group in measured_groups]
        if self.learns_similarity:
            cosines = (stacked[:, 0] * stacked[:, 1]).sum(-1)
            scores = score_numbers(cosines, [group.scores[0] for group in groups]).scores
            return {name: scores[name] for name in ("pearson", "spearman")}
        return score_retrieval(stacked, groups).scores


def has_other_positive(group: Group) -> bool:
    """Whether the anchor has a text to find other than itself."""
    return group.texts[1] != group.texts[0]


def score_retrieval(vectors: np.ndarray, groups: Sequence[Group]) -> ScoreSums:
    """Score how well anchors retrieve their positives from the positives and negatives of all groups.

    An anchor that is its own positive is not used as a query.
    """
    documents: dict[str, np.ndarray] = {}
    queries: dict[str, np.ndarray] = {}
    relevant: dict[str, dict[str, int]] = {}
    names: dict[str, set[str]] = {}  # label -> its texts, for labelled texts
    for of_group, group in zip(vectors, groups, strict=True):
        documents |= dict(zip(group.texts[1:], of_group[1:], strict=True))
        if not has_other_positive(group):
            continue
        queries[group.texts[0]] = of_group[0]
        relevant.setdefault(group.texts[0], {})[group.texts[1]] = 1
        names.setdefault(group.alike, set()).add(group.texts[1])
    for group in groups:
        if group.alike:
            relevant[group.texts[0]] = dict.fromkeys(names[group.alike] - {group.texts[0]}, 1)
    ids = list(documents)
    best = search_exact(np.stack(list(queries.values())), np.stack(list(documents.values())), ids)
    given = [
        [ids[i] for i in indices if ids[i] != query] if ids else []
        for query, (indices, _) in zip(queries, best, strict=True)
    ]
    return retrieval.ranking_metrics(given, [relevant[query] for query in queries])
