"""What the heads are: what each reads, and how Hugging Face calls it. Their modules are in bert.py.

To add a head, add it here, its module to `HEAD_MODULES`, its ONNX form to `HEAD_BUILDERS`, and its published names to
the `heads` of the families that have it.
"""

from dataclasses import dataclass
from typing import Literal

from bert_jax.models.encoder_config import EncoderConfig


@dataclass(frozen=True)
class Head:
    architecture: str  # what Hugging Face appends to the family's name, as in BertForMaskedLM
    # The state of each token, or one state for each text: the pooler's, or the direction of its mean or [CLS] state.
    reads: Literal["tokens", "pooler", "mean", "cls"] = "tokens"
    compares: bool = False  # reads the differences of two vectors; the texts of a pair are encoded separately
    labels: bool = False  # has an output for each label of the data
    decoded: bool = False  # reads the enhanced mask decoder, if the encoder has one
    transformed: bool = False  # reads the output of Transform, in families that have it
    dropout: str = "head_dropout"  # the field of the config with the rate of dropout before it

    def width(self, config: EncoderConfig) -> int:
        """Return the size of the states that the head reads."""
        return config.hidden_size * (2 if self.compares else 1)

    @property
    def each_token(self) -> bool:
        return self.reads == "tokens"

    @property
    def pooler(self) -> bool:
        return self.reads == "pooler"


HEADS = {
    "mlm": Head("ForMaskedLM", decoded=True),
    "nsp": Head("ForNextSentencePrediction", reads="pooler"),
    "classify": Head("ForSequenceClassification", reads="pooler", labels=True),
    # These read the vectors of an embedder, which does not use the pooler.
    "classify_mean": Head("ForMeanDirectionClassification", reads="mean", labels=True),
    "classify_cls": Head("ForFirstTokenDirectionClassification", reads="cls", labels=True),
    "compare_mean": Head("ForMeanComparison", reads="mean", compares=True, labels=True),
    "compare_cls": Head("ForFirstTokenComparison", reads="cls", compares=True, labels=True),
    "tag": Head("ForTokenClassification", labels=True, transformed=True, dropout="tag_dropout"),
    "answer": Head("ForQuestionAnswering", transformed=True, dropout="answer_dropout"),
    "replaced": Head("ForPreTraining"),
    "replaced_in_context": Head("ForPreTraining"),
    "sop": Head("ForSentenceOrderPrediction", reads="pooler"),
}


def has_transform(config: EncoderConfig, heads: tuple[str, ...]) -> bool:
    return config.transform and any(HEADS[name].transformed for name in heads)
