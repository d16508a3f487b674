"""The config and the task of a cross-encoder: the loss reads the logits of all documents of a query together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import jax.numpy as jnp

from bert_jax.core.config import NonNegative, OneOf, Range, Share, check_ranges
from bert_jax.core.errors import check_name
from bert_jax.data.batch_source import Fact
from bert_jax.data.examples.candidates import CandidateColumns
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.row_packing import PLACE, RowLayout, Target
from bert_jax.finetuning.encoded_windows import gather_by_example
from bert_jax.finetuning.epochs_config import Dropout, GoingOnConfig, InitEncoderConfig, check_validation
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.losses.loss import Loss
from bert_jax.losses.ranking import RANKING_LOSSES, RankingLoss
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.workdir import Workdir


@dataclass(frozen=True)
class CandidatesConfig:
    train: str = ""  # training data: a file, a folder of files, or tfds:NAME/CONFIG:SPLIT
    validation: str = ""  # validation set, in the same form as data.train; "": a share of the training data
    validation_ratio: Share = 0.1  # share of the queries that becomes the validation set
    # share of the remaining queries on which probabilities are calibrated; 0: none
    calibration_ratio: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.05
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    # number of queries to use, drawn at random, the same for every seed; 0: all
    max_examples: NonNegative = 0
    # documents of other queries to add to each query as not relevant; -1: 4 if all documents are relevant, else none
    num_random_negatives: Annotated[int, Range(-1, 1000)] = -1
    # maximum number of documents per training query; the most relevant are kept; 0: all
    max_documents_per_query: NonNegative = 0
    batch_size: Annotated[int, Range(1, 1 << 20)] = 16  # queries per step, each with its documents
    # maximum number of tokens in a pair; longer documents are truncated
    max_length: Annotated[int, Range(1, 1 << 20)] = 256
    # how pairs are put into rows; packed: several per row; bucketed: one per row, rows as long as the longest of the
    # step; padded: one per row, all rows of one length; the choice does not change what is learnt
    batching: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        check_validation(self.validation, self.validation_ratio)


@dataclass(frozen=True)
class CrossEncoderConfig(InitEncoderConfig):
    head_dropout: Dropout = -1.0  # dropout before the head; -1: that of `init`


@dataclass(frozen=True)
class RankingLossConfig:
    # loss; auto: teacher_ranking for a teacher's scores, binary for relevant or not, lambda_rank for grades
    name: Annotated[str, OneOf(("auto", *RANKING_LOSSES))] = "auto"
    scale: Annotated[float, Range(0, 1e6)] = 0.0  # factor of the logits; 0: the usual one of the loss

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name != "auto":
            check_name(self.name, RANKING_LOSSES, "loss")


@dataclass(frozen=True)
class RerankConfig(GoingOnConfig):
    default_epochs: ClassVar[float] = 1.0
    # On pairs of Cranfield, MiniLM had an MRR@10 of .620 after 60 steps of 32 pairs, .703 after 116; chance is .457.
    min_steps: ClassVar[int] = 120
    # A cross-encoder that starts from an embedder has to learn something new: the words that query and document share.
    # After 62 steps of 32 pairs, MiniLM (384 wide) had an MRR@10 of .335 with a learning rate of 6e-5, .813 with 2e-4,
    # .844 with 4e-4; chance is .29.
    base_learning_rate: ClassVar[float] = 5e-5
    rate_power: ClassVar[int] = 2

    init: str = ""
    report: bool = True  # write WORKDIR/report at the end of the run
    model: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    loss: RankingLossConfig = field(default_factory=RankingLossConfig)
    data: CandidatesConfig = field(default_factory=CandidatesConfig)

    @property
    def batch_size(self) -> int:
        return self.data.batch_size

    @property
    def example_columns(self) -> ExampleColumns:
        return self.data.columns.pair_columns

    @property
    def writes_report(self) -> bool:
        return self.report


@dataclass(frozen=True)
class RankingTask(HeadTask):
    kind: Relevance
    loss: RankingLoss = RANKING_LOSSES["binary"]
    scale: float = 1.0  # the factor of the loss
    max_documents: int = 2  # at most, per query
    whole_batch: ClassVar[bool] = True

    @property
    def targets(self) -> dict[str, Target]:
        taught = {"scores": Target("float32")} if self.loss.uses_teacher_scores else {}
        return self.kind.targets | {PLACE: Target("int32")} | taught

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        yield "loss", self.loss.name

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        return {self.head: super().outputs(params, batch, constants, key)[self.head]}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits = gather_by_example(outputs[self.head][..., 0].astype(jnp.float32), batch, self.max_documents)
        lists = {
            name: gather_by_example(batch[name], batch, self.max_documents)
            for name in ("labels", "label_weights", "scores")
            if name in batch
        }
        return {f"{self.loss.name}_loss": self.loss.compute(logits, lists, self.scale)}
