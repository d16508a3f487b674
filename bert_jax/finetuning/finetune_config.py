"""The config of fine-tuning runs."""

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from bert_jax.core.config import NonNegative, Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.row_packing import RowLayout
from bert_jax.finetuning.epochs_config import (
    MAX_LEARNING_RATE,
    Dropout,
    EpochsConfig,
    InitEncoderConfig,
    check_validation,
)
from bert_jax.finetuning.label_descriptions import AUTO, read_label_descriptions
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.predictions.kind import Kind

# Contrastive training: the learning rate as a multiple of that of fine-tuning, and the least steps. With 8 texts of
# each class of four data sets (a 6-layer MiniLM) 60, 30 and 15 steps have a mean accuracy of .676, .676 and .655; the
# two sets of fewest texts gain .005 and .016 by the higher rate.
RATE_FACTOR, FEWEST_STEPS = 2.5, 30
Method = Literal["finetune", "contrastive", "linear_probe"]
# Minutes to choose a method and to train, for up to so many examples, with an encoder of SIZE: layers x width².
MINUTES, SIZE = ((100, 3), (500, 5), (1_999, 10)), 6 * 384**2


@dataclass(frozen=True)
class ExamplesConfig:
    train: str = ""  # training data: a file, a folder, a glob, or tfds:NAME/CONFIG:SPLIT
    validation: str = ""  # validation set, in the same form as data.train; "": a share of the training data
    validation_ratio: Share = 0.1  # share of the training data, by document, that becomes the validation set
    # share of the remaining documents on which probabilities are calibrated; 0: none
    calibration_ratio: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.05
    # number of folds of a cross-validation, whose predictions give the scores and the calibration; 0: none, the
    # validation set is used; -1: 5 for fewer than 2,000 examples, else 0
    folds: Annotated[int, Range(-1, 100)] = -1
    # index of the fold that this run leaves out, from 0; -1: none
    fold_index: Annotated[int, Range(-1, 99)] = -1
    # file of texts that the model should refuse; the report shows how well it detects them
    out_of_scope: str = ""
    columns: ExampleColumns = field(default_factory=ExampleColumns)
    # number of training examples to use, drawn at random, the same for every seed; 0: all
    max_examples: NonNegative = 0
    batch_size: Annotated[int, Range(1, 1 << 20)] = 32  # examples per step
    # maximum number of tokens in an example, or in a window of it
    max_length: Annotated[int, Range(1, 1 << 20)] = 128
    # what is done with longer texts; truncate: only their beginning is read; windows: read in overlapping windows
    long_texts: Literal["truncate", "windows"] = "truncate"
    overlap: NonNegative = 32  # tokens that neighbouring windows share
    # how examples are put into rows; packed: several per row; bucketed: one per row, rows as long as the longest of the
    # step; padded: one per row, all rows of one length; the choice does not change what is learnt
    batching: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.train:
            raise BertJaxError(
                "config key data.train is missing; give a file, --config.data.train=train.csv, or tfds:NAME:SPLIT"
            )
        if self.folds == 1:
            raise BertJaxError("data.folds is 1; at least 2 are needed, or 0 for a split")
        if 0 <= self.fold_index >= self.folds:
            raise BertJaxError(
                f"data.fold_index={self.fold_index} is not among the data.folds={self.folds} folds, which count from 0"
            )
        check_validation(self.validation, self.validation_ratio)


@dataclass(frozen=True)
class HeadConfig(InitEncoderConfig):
    """How the encoder computes, and what the head reads."""

    # what the head reads of a text; mean: the mean of its hidden states; cls: the state of [CLS]; native: what heads of
    # this family read in transformers; auto: as `init` pools if it is an embedder, else native
    pooling: Literal["auto", "native", "mean", "cls"] = "auto"
    # how the texts of a pair are encoded; cross_encoder: in one sequence; bi_encoder: separately, and the head reads
    # the difference of their vectors; auto: bi_encoder if there are folds and `init` is an embedder or model.pooling is
    # set, else cross_encoder
    pair_encoding: Literal["auto", "cross_encoder", "bi_encoder"] = "auto"
    head_dropout: Dropout = -1.0  # dropout before the head; -1: that of `init`


@dataclass(frozen=True)
class FinetuneConfig(EpochsConfig, ABC):
    base_learning_rate: ClassVar[float] = 3e-5  # for a model as wide as BERT-base

    report: bool = True  # write WORKDIR/report at the end of the run
    model: HeadConfig = field(default_factory=HeadConfig)
    # what is trained; finetune: encoder and head; linear_probe: the head alone, by regression on the frozen encoder, in
    # seconds; contrastive: the encoder, to tell texts of the same class from others, then a linear probe, for few
    # labels; auto: the best in cross-validation or, for 2,000 examples or more but fewer than 1,000 of each class, the
    # best on one fold; else finetune
    method: Literal["auto", "finetune", "contrastive", "linear_probe"] = "auto"
    # time to choose the method and to train; what it does not suffice for is left out; 0: 3 up to 100 examples, 5 up to
    # 500, 10 below 2,000, no limit from there on; for an encoder larger than 6 layers of width 384 as many times longer
    minutes: Annotated[float, Range(0, 1e6)] = 0.0
    # what the head starts from; linear_probe: a regression on the frozen encoder; pretrained: the head of `init`,
    # random if it has none
    head_init: Literal["linear_probe", "pretrained"] = "linear_probe"
    # texts that describe the labels, from which a probe learns, too: a JSON object, or a file that holds one; auto: the
    # names of the labels, for one class per text, fewer than 64 examples of each class and folds, unless these show
    # that they do not help; none: no texts
    label_descriptions: str = AUTO
    data: ExamplesConfig = field(default_factory=ExamplesConfig)

    def __post_init__(self):
        super().__post_init__()
        read_label_descriptions(self.label_descriptions)
        if self.method in ("linear_probe", "contrastive") and self.head_init == "pretrained":
            raise BertJaxError(
                f"method={self.method} makes a new head; leave --config.head_init=pretrained out"
            )
        if self.method == "linear_probe" and self.prediction_kind.link is None:
            raise BertJaxError(
                f"a linear probe cannot predict {self.prediction_kind.name}; leave --config.method=linear_probe out"
            )
        needs_validation = self.sweep or self.patience or self.checkpoints.best_metric or self.num_seeds > 1
        if self.method == "contrastive" and needs_validation:
            raise BertJaxError(
                "method=contrastive fits its head at the end of the run, so there is no validation before; leave "
                "sweep, num_seeds, patience and checkpoints.best_metric out"
            )
        if self.method == "contrastive" and self.model.pair_encoding == "bi_encoder":
            raise BertJaxError(
                "method=contrastive encodes the texts of a pair together; leave model.pair_encoding=bi_encoder out"
            )
        if self.method == "contrastive" and not self.prediction_kind.supports_contrastive:
            raise BertJaxError(
                f"method=contrastive is for one class per text, not for {self.prediction_kind.name}"
            )

    @property
    @abstractmethod
    def prediction_kind(self) -> type[Kind]:
        """The kind of prediction that the task learns."""

    single_run_overrides = ("data.folds=0",)  # one model is enough to compare

    @property
    def example_columns(self) -> ExampleColumns:
        return self.data.columns

    def budget_seconds(self, examples: int, encoder: EncoderConfig) -> float:
        """Return the seconds in which a method is chosen and the final model is trained."""
        usual = next((minutes for most, minutes in MINUTES if examples <= most), math.inf)
        size = encoder.num_hidden_layers * encoder.hidden_size**2 / SIZE
        return 60 * (self.minutes or usual * max(size, 1))

    @property
    def runs_without_steps(self) -> str:
        if self.method == "linear_probe":
            return "the head is computed by a regression, the encoder stays as it is"
        return super().runs_without_steps

    @property
    def cross_validates(self) -> bool:
        """Whether folds are trained before the run itself."""
        return self.data.folds > 0 and self.data.fold_index < 0

    @property
    def auto_method(self) -> bool:
        """Whether the data may decide the method, even if there are too many examples for folds."""
        is_decided = self.method != "auto" or self.head_init == "pretrained" or self.data.folds >= 0
        return not (is_decided or self.patience or self.checkpoints.best_metric)

    def default_learning_rate(self, width: int, examples: int) -> float:
        rate = super().default_learning_rate(width, examples)
        return min(rate * RATE_FACTOR, MAX_LEARNING_RATE) if self.method == "contrastive" else rate

    def with_method(self, method: Method) -> Self:
        return dataclasses.replace(self, method=method, steps=0 if method == "linear_probe" else self.steps)

    def num_steps(self, examples: int) -> int:
        return 0 if self.method == "linear_probe" else super().num_steps(examples)

    @property
    def fewest_steps(self) -> int:
        return FEWEST_STEPS if self.method == "contrastive" else super().fewest_steps
