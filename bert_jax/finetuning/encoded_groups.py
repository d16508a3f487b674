"""Groups of texts as the model reads them, and a teacher's vectors of them."""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples.groups import Group
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.finetuning.embedding_task import TEACHER, EmbeddingTask
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.sentence_transformers import EmbedderSettings, TextSettings
from bert_jax.inference.load import load
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    EmbeddingPipeline,
    find_prompt_name,
    prepare_texts,
    prompt_text,
)
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter


def encode_groups(
    task: EmbeddingTask,
    tokenizer: Tokenizer,
    truncated: TruncationCounter,
    ids: dict[str, int],
    teacher_vectors: Sequence[dict[str, np.ndarray]],
    groups: Sequence[Group],
) -> list[EncodedWindow]:
    """Encode groups as the model reads them: a window for each text, those of the first group first.

    `ids` are those of the texts; `teacher_vectors` are a teacher's vectors by text, for the first texts of the groups,
    and so on.
    """

    def targets(group: Group, n: int) -> dict:
        """Return the targets of the n-th text of a group."""
        targets: dict = {"ids": ids[group.shared_label or group.texts[n]], "label_weights": 1.0}
        if group.scores and n == 0:
            targets["scores"] = group.scores
        if n < len(teacher_vectors):
            targets[TEACHER] = teacher_vectors[n][group.texts[n]]
        return targets

    settings, columns = task.layout.text_settings or EmbedderSettings(), []
    for n in range(task.texts_per_group):
        prompt = prompt_text(settings, choose_prompt(settings, n))
        texts = prepare_texts(settings, [group.texts[n] for group in groups], prompt)
        encoded = task.encode_texts(tokenizer, texts, n, truncated.max_length)
        truncated.count(encoding for encoding, _ in encoded)
        columns.append(encoded)
    return [
        EncodedWindow(encoding, i, targets(group, n) | of_tokens)
        for i, (group, texts) in enumerate(zip(groups, zip(*columns, strict=True), strict=True))
        for n, (encoding, of_tokens) in enumerate(texts)
    ]


def choose_prompt(embedder: TextSettings, n: int) -> str | None:
    """Return the name of the prompt for the n-th text of a group: anchors are queries, all others are documents."""
    return find_prompt_name(embedder, DOCUMENT_PROMPTS if n else QUERY_PROMPTS)


def number_texts(groups: Sequence[Group]) -> dict[str, int]:
    """Number the different texts; of labelled texts, number the labels."""
    numbers: dict[str, int] = {}
    for group in groups:
        for text in [group.shared_label] if group.shared_label else group.texts:
            numbers.setdefault(text, len(numbers))
    return numbers


def compute_teacher_vectors(
    directory: ModelDirectory, groups: Sequence[Group], task: EmbeddingTask
) -> list[dict[str, np.ndarray]]:
    """Return a dict of the teacher's vectors by text, for the first texts of the groups, for the second, and so on."""
    teacher = load(directory)
    of_texts = []
    for n in range(task.teacher_shape[0]):
        texts = list(dict.fromkeys(group.texts[n] for group in groups))
        embed_chunk = EmbeddingPipeline(teacher, prompt=choose_prompt(teacher.embedder, n))
        vectors = map_texts(texts, embed_chunk)
        of_texts.append(dict(zip(texts, vectors, strict=True)))
    return of_texts
