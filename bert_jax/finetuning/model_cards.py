"""The model cards of classifiers, taggers, answer finders, embedders and cross-encoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bert_jax.data.examples.example import Example
from bert_jax.finetuning.embedding_task import EmbedConfig, EmbeddingTask, GroupsRunConfig
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.hub.layout import Layout
from bert_jax.hub.published_form import MODELING_FILE, modeling_classes
from bert_jax.models.heads import HEADS
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import Kind
from bert_jax.text.truncation import TruncationCounter
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
    code = ", trust_remote_code=True" if modeling_classes(layout) else ""
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
            * bool(modeling_classes(layout)),
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
    counts = kind.targets.count_labels(examples).most_common()
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


def usage(layout: Layout, ours: str, theirs: str) -> str:
    """Return the code of a card: ours and, if it opens the model, that of sentence-transformers."""
    code = f"import bert_jax\nbert_jax.{ours}"
    opens_elsewhere = library(layout) != "bert_jax"
    return f"{code}\n\nfrom sentence_transformers import {theirs}" if opens_elsewhere else code


def library(layout: Layout) -> str:
    """Return the library that opens the model; sentence-transformers does so by transformers or, if static, itself."""
    elsewhere = layout.family.encoder_in_transformers or layout.is_static
    return "sentence-transformers" if elsewhere else "bert_jax"


def embedder_card(
    task: EmbeddingTask, config: EmbedConfig, data: str, truncated: TruncationCounter
) -> ModelCard:
    """Return the card of an embedder; `data` describes what it is trained on."""
    embedder, settings = task.embedder, task.settings
    prompts = {name: text for name, text in embedder.prompts.items() if text}
    named = f', prompt_name="{next(iter(prompts))}"' if prompts else ""
    sizes = " or ".join(map(str, config.loss.sizes))
    scale = f"{settings.scale:g}{' at the start, then learnt' * task.learns_scale}"
    return ModelCard(
        library=library(task.layout),
        pipeline="sentence-similarity",
        tags=("sentence-similarity", "feature-extraction"),
        about=[
            f"An embedder of {task.layout.vector_size} dimensions: texts that belong together get similar "
            "vectors.",
            f"It reads the first {embedder.max_length} tokens of a text; the rest is truncated.",
            *[f"Its first {sizes} dimensions can be used alone."] * bool(sizes),
            *[f'The prompt of a {name} is "{text}".' for name, text in prompts.items()],
        ],
        usage=usage(
            task.layout,
            f'Embedder.load("DIR").encode(["a text"]{named})',
            f'SentenceTransformer\nSentenceTransformer("DIR").encode(["a text"]{named})',
        ),
        data=[f"{data}.", *truncation_lines(truncated, "texts")],
        recipe={
            "loss": task.loss.name + " in both directions" * settings.symmetric,
            "scale of cosines": scale if "scale" in task.loss.reads else "",
            "margin": f"{settings.margin:g}" if settings.margin and "margin" in task.loss.reads else "",
            "teacher": f"`{config.loss.teacher}`" if config.loss.teacher else "",
            "groups per step": f"{config.batch_size:,}",
        },
    )


def describe_groups(config: GroupsRunConfig, task: EmbeddingTask, train: int, validation: int) -> str:
    """Describe the data of an embedder: the numbers of groups, and the files that they are from."""
    data = config.data
    files = ", ".join(f"`{spec}`" for spec in data.train)
    source = describe_validation_source(data.validation, data.validation_ratio, "documents")
    groups = f"{train:,} groups of {task.texts_per_group} texts, from {files}"
    return f"{groups}; {validation:,} groups for validation, from {source}"


def describe_validation_source(file: str, share: float, what: str) -> str:
    """Say where the validation set comes from: a file, or a share of the training data."""
    return f"`{file}`" if file else f"{share:.0%} of the {what}"


def truncation_lines(truncated: TruncationCounter, what: str) -> list[str]:
    return [f"{line}." for line in [truncated.notice(what=what)] if line]
