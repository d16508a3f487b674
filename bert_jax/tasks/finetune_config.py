"""The config of the fine-tunings."""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from bert_jax.config import NotNegative, Range, Share, check_ranges
from bert_jax.data.examples.arrange import RowLayout
from bert_jax.data.examples.columns import Columns
from bert_jax.errors import BertJaxError
from bert_jax.predictions.kind import Kind
from bert_jax.tasks.epochs_config import Dropout, EpochsConfig, ModelConfig

Method = Literal["finetune", "contrast", "probe"]


@dataclass(frozen=True)
class ExamplesConfig:
    train: str = ""  # a file, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # likewise; "" holds out a share of train, by document
    heldout_share: Share = 0.1
    # Of the documents left to train on, kept to learn how far the model can be trusted; 0: none.
    calibration_share: Annotated[float, Range(0, 1, below=True)] = 0.05
    # Parts of the training data. Each is predicted by a model that learnt from the others, and calibration and scores
    # come from all of these predictions; the final model learns from everything. -1: 5 of fewer than 2,000 examples,
    # else 0, which holds out the shares above.
    folds: Annotated[int, Range(-1, 100)] = -1
    # The one that this run leaves out; -1: it learns from all of them.
    fold: Annotated[int, Range(-1, 99)] = -1
    # A file of texts that the model should refuse: the report tells how well it knows them from the others.
    foreign: str = ""
    columns: Columns = field(default_factory=Columns)
    most: NotNegative = 0  # examples of train that are used, drawn at random whatever the seed; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 32  # examples of a step
    max_length: Annotated[int, Range(1, 1 << 20)] = 128  # tokens of an example, or of a window of it
    long: Literal["cut", "windows"] = "cut"  # what is done with longer ones
    overlap: NotNegative = 32  # tokens that neighbouring windows share
    rows: RowLayout = "packed"  # how a step's examples stand in its rows; what is learnt is the same

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.train:
            raise BertJaxError(
                "config key data.train is missing; give a file, --config.data.train=train.csv, or tfds:NAME:SPLIT"
            )
        if self.folds == 1:
            raise BertJaxError("data.folds is 1; at least 2 are needed, or 0 for a split")
        if 0 <= self.fold >= self.folds:
            raise BertJaxError(
                f"data.fold={self.fold} is not one of data.folds={self.folds}, which count from 0"
            )
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )


@dataclass(frozen=True)
class HeadConfig(ModelConfig):
    """What the head reads, too."""

    # What a classifier reads: the mean of a text's states, that of [CLS], or what the published model of the family
    # does, which transformers opens. auto: as an embedder pools, else as published.
    pooling: Literal["auto", "published", "mean", "cls"] = "auto"
    # Pairs: together in one sequence (a cross-encoder), or apart (a bi-encoder), when the head reads the difference of
    # the two vectors. auto: apart if `init` is an embedder and examples are so few that they are cross-validated.
    pairs: Literal["auto", "together", "apart"] = "auto"
    head_dropout: Dropout = -1.0


@dataclass(frozen=True)
class FinetuneConfig(EpochsConfig):
    report: bool = True  # writes WORKDIR/report when the run has ended
    model: HeadConfig = field(default_factory=HeadConfig)
    # probe: only the head learns, as a regression on the frozen encoder's features, in seconds.
    # contrast: the encoder learns to bring texts of a class together, then the head is a probe; for few labels.
    # auto: the one that predicts better out of fold; where there are no folds, finetune.
    method: Literal["auto", "finetune", "contrast", "probe"] = "auto"
    # What the head begins as: the probe, or what `init` has for these labels, else random values.
    head: Literal["probe", "kept"] = "probe"
    data: ExamplesConfig = field(default_factory=ExamplesConfig)

    def __post_init__(self):
        super().__post_init__()
        if self.method in ("probe", "contrast") and self.head == "kept":
            raise BertJaxError(f"method={self.method} makes a new head; leave --config.head=kept out")
        asked = self.sweep or self.patience or self.checkpoints.best or self.seeds > 1
        if self.method == "contrast" and asked:
            raise BertJaxError(
                "method=contrast fits its head when the run has ended, so nothing is measured before; leave sweep, "
                "seeds, patience and checkpoints.best out"
            )
        if self.method == "contrast" and self.model.pairs == "apart":
            raise BertJaxError("method=contrast encodes pairs together; leave model.pairs=apart out")
        if self.method == "contrast" and not self.predicts.contrasts:
            raise BertJaxError(f"method=contrast is for one class a text, not for {self.predicts.name}")

    @property
    @abstractmethod
    def predicts(self) -> type[Kind]:
        """The kind of its predictions."""

    def with_method(self, method: Method) -> Self:
        return dataclasses.replace(self, method=method, steps=0 if method == "probe" else self.steps)

    @property
    def batch(self) -> int:
        return self.data.batch

    def steps_of(self, examples: int) -> int:
        return 0 if self.method == "probe" else super().steps_of(examples)
