"""The model cards of models that predict labels, numbers, tags or answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bert_jax.data.examples.example import Example
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.hub.layout import MODELING_FILE, Layout
from bert_jax.models.heads import HEADS
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import Kind
from bert_jax.training.task import ModelCard

MAX_LABELS = 30  # labels that are shown with their counts


@dataclass(frozen=True)
class Use:
    pipeline: str  # Hugging Face's name
    call: str  # of the class here
    auto_class: str  # of transformers
    inputs: str  # of its tokenizer


# By the head that published models have.
USES = {
    "classify": Use(
        "text-classification", 'Classifier.load("DIR").predict', "AutoModelForSequenceClassification", '"a text"'
    ),
    "tag": Use("token-classification", 'Tagger.load("DIR").tag', "AutoModelForTokenClassification", '"a text"'),
    "answer": Use(
        "question-answering", 'QuestionAnswerer.load("DIR").answer', "AutoModelForQuestionAnswering",
        '"a question", "a passage"',
    ),
}  # fmt: skip


def prediction_card(
    layout: Layout, kind: Kind, data: ExamplesConfig, examples: Sequence[Example], about: str
) -> ModelCard | None:
    """Return the card of a model; `about` describes the parts of its data, of which `examples` are trained on. A kind
    that reads another head has none."""
    use, most = USES.get(kind.heads[0]), layout.config.max_position_embeddings
    if use is None:
        return None
    is_pair = kind.heads[0] == "classify" and all(isinstance(example.text, tuple) for example in examples)
    ours = theirs = use.inputs
    if is_pair:
        ours, theirs = '("a text", "another")', '"a text", "another"'
    code = ", trust_remote_code=True" if layout.auto_map else ""
    in_transformers = layout.family.encoder_in_transformers
    by_transformers = f"""

from transformers import AutoTokenizer, {use.auto_class}
model, tokenizer = {use.auto_class}.from_pretrained("DIR"{code}), AutoTokenizer.from_pretrained("DIR")
model(**tokenizer({theirs}, return_tensors="pt"))"""
    return ModelCard(
        library="transformers" if in_transformers else "bert_jax",
        pipeline=use.pipeline,
        tags=(use.pipeline,),
        about=[
            f"What it predicts: {kind.name}{', for pairs of texts' * is_pair}.",
            f"It reads at most {most:,} tokens, and was trained on at most {data.max_length:,}.",
            *[
                f"`transformers` has no class for its head; `{MODELING_FILE}` in this directory has one, and without "
                "`trust_remote_code=True` the head is replaced by a random one."
            ]
            * bool(layout.auto_map),
        ],
        usage=f"import bert_jax\nbert_jax.{use.call}({ours})" + by_transformers * in_transformers,
        data=[f"{about}.", describe_named_columns(data), *label_lines(kind, examples)],
        recipe={"head reads": describe_head(layout)},
        describe_calibration=partial(describe_probabilities, kind),
    )


def describe_head(layout: Layout) -> str:
    head = HEADS[layout.heads[-1]]
    return {"tokens": "the state of each token", "pooler": "the family's pooler"}.get(
        head.reads,
        f"the {head.reads} state of a text, scaled{', and differences of two texts' * head.compares}",
    )


def describe_named_columns(data: ExamplesConfig) -> str:
    columns = data.columns
    named = {
        "text": columns.text, "second text": columns.text_pair, "label": columns.label, "document": columns.group,
    }  # fmt: skip
    given = ", ".join(f"{use} `{name}`" for use, name in named.items() if name)
    return f"Columns: {given}; others by their usual names." if given else "Columns have their usual names."


def label_lines(kind: Kind, examples: Sequence[Example]) -> list[str]:
    """Return the lines of a table of the labels and their counts, the most frequent ones first."""
    counts = kind.count_labels(examples).most_common()
    if not counts:
        return []
    rows = [f"| {label} | {count:,} |".replace("\n", " ") for label, count in counts[:MAX_LABELS]]
    more = f"{len(counts) - MAX_LABELS:,} more labels are left out."
    return [
        "",
        "| label | training examples |",
        "| --- | ---: |",
        *rows,
        *["", more] * (len(counts) > MAX_LABELS),
    ]


def describe_probabilities(kind: Kind, calibration: Calibration) -> str:
    """Say what the probabilities of a model are worth."""
    if kind.link == "identity":
        return "The model gives a number, without a probability."
    if not calibration.is_fitted:
        return "Probabilities were not calibrated: trust their order, not their values."
    theirs = (
        "" if calibration.keeps_probabilities else " `transformers` gives logits, before this calibration."
    )
    described = calibration.describe()
    unseen = "No model was trained on the examples that it predicted here."
    return f"{described[0].upper()}{described[1:]}. {unseen}{theirs}"
