"""Compare the outputs of an exported model with those of the model that it was written from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.export.heads import exported_head
from bert_jax.hub.onnx_files import EMBEDDING, HIDDEN_STATES, TOKEN_VECTORS
from bert_jax.inference.batching import pad_batch, split_texts
from bert_jax.inference.computations import HeadLogits, HiddenStates, QueryTokenVectors, SparseVectors
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.onnx_session import Session
from bert_jax.inference.sparse_vectors import stack_vectors
from bert_jax.inference.text_vectors import (
    EmbeddingPipeline,
    PromptText,
    embedder_encoding_options,
    prepare_texts,
)
from bert_jax.models.heads import HEADS
from bert_jax.text.encoding import Encoding, Text
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.truncation import TruncationCounter

SENTENCE = (
    "Each of these sentences is read alone, and then in one batch, in which the short ones are padded. "
)
PAIRS = (("a", "b"), ("Where is it?", SENTENCE), (SENTENCE * 2, "short"), (SENTENCE, SENTENCE * 3))
TEXTS = ("", "a", "Hello, world!", "naïve café, 東京, Привет", SENTENCE, SENTENCE * 6)
MOST_DIFFERENT = 1e-4  # an output may differ from ours


@dataclass(frozen=True)
class Difference:
    largest: float
    share: float  # the root mean square of the differences, as a share of that of the outputs


def require_equal_outputs(difference: Difference, program: str, source, output) -> None:
    """Refuse to write `output` if the outputs of the program differ too much from those of the model."""
    if not difference.largest <= MOST_DIFFERENT:
        raise BertJaxError(
            f"{output} is not written: outputs of {program} differ by up to {difference.largest:.1e} from those of "
            f"{source}, and at most {MOST_DIFFERENT:.0e} is accepted; use the model itself"
        )


def measure_difference(model: Encoder, session: Session) -> Difference:
    """Compare all outputs for texts of several lengths, each alone and all in one batch."""
    head = exported_head(model.layout)
    texts: Sequence[Text] = PAIRS if reads_pairs(model, head) else TEXTS
    encodings = encode(model, head, texts)
    expected = model_outputs(model, head, texts, encodings, session.outputs)
    attended = count_attended(model, encodings)
    alone = [[number] for number in range(len(texts))]
    largest, squares, differences = 0.0, 0.0, 0.0
    for numbers in [*alone, list(range(len(texts)))]:
        pad = model.tokenizer.special.pad
        batch = split_texts(pad_batch([encodings[number] for number in numbers], pad))
        real = batch["attention_mask"]
        if model.layout.multi_vector:
            first = np.arange(real.shape[1]) < attended[numbers][:, None]
            batch = batch | {"attention_mask": real * first}
        for name, values in session.run(batch).items():
            if name == HIDDEN_STATES:
                values = join_texts(values, real, len(numbers))
            for number, row in zip(numbers, values, strict=True):
                ours = expected[name][number].astype(np.float64)
                difference = row[: len(ours)] - ours
                largest = max(largest, np.abs(difference).max(initial=0))
                squares, differences = (
                    squares + np.square(ours).sum(),
                    differences + np.square(difference).sum(),
                )
    return Difference(float(largest), float(np.sqrt(differences / squares)))


def count_attended(model: Encoder, encodings: Sequence[Encoding]) -> np.ndarray:
    """Return how many tokens of each text the others attend to: all, or, in every second one, fewer, if queries of the
    model are lengthened by tokens that are not attended to."""
    counts = np.array([len(encoding.input_ids) for encoding in encodings], np.int32)
    expansion = model.layout.multi_vector and model.layout.multi_vector.expansion
    if expansion and not expansion.attend:
        counts[1::2] -= np.minimum(counts[1::2] // 2, expansion.length)
    return counts


def join_texts(states: np.ndarray, attention_mask: np.ndarray, count: int) -> Any:
    """Return the states of each of `count` texts or pairs, without padding."""
    joined, real = states.reshape(count, -1, states.shape[-1]), attention_mask.reshape(count, -1) > 0
    return [tokens[mask] for tokens, mask in zip(joined, real, strict=True)]


def reads_pairs(model: Encoder, head: str | None) -> bool:
    return model.layout.is_cross_encoder or head == "answer" or (head is not None and HEADS[head].compares)


def encode(model: Encoder, head: str | None, texts: Sequence[Text]) -> list[Encoding]:
    if model.layout.text_settings:
        encoding_options, texts = (
            embedder_encoding_options(model),
            prepare_texts(model.text_settings, texts, ""),
        )
    else:
        apart = head is not None and HEADS[head].compares
        encoding_options = EncodingOptions(model.config.max_position_embeddings, separate_texts=apart)
    return [encoding for (encoding,) in encoding_options.encode(model.tokenizer, texts)]


def model_outputs(
    model: Encoder, head: str | None, texts: Sequence[Text], encodings: list[Encoding], names: Sequence[str]
) -> dict[str, list[np.ndarray]]:
    """Return what the model computes for each text, by the names of the graph's outputs."""

    def each_token(outputs: list[np.ndarray]) -> list[np.ndarray]:
        """Without padding."""
        lengths = (len(encoding.input_ids) for encoding in encodings)
        return [output[:length] for output, length in zip(outputs, lengths, strict=True)]

    if tokens := model.layout.multi_vector:
        extra_inputs = {"attended": count_attended(model, encodings)}
        wanted = {
            HIDDEN_STATES: QueryTokenVectors(None, False),
            TOKEN_VECTORS: QueryTokenVectors(tokens.projection, tokens.normalize),
        }
        return {name: each_token(model.run(encodings, wanted[name], extra_inputs)) for name in names}
    hidden = (
        {HIDDEN_STATES: each_token(model.run(encodings, HiddenStates()))} if HIDDEN_STATES in names else {}
    )
    if head is None:
        if not model.layout.embedder:
            return hidden
        uncounted = TruncationCounter(model.config.max_position_embeddings)
        embed = EmbeddingPipeline(model, prompt=PromptText(""), truncated=uncounted)
        return hidden | {EMBEDDING: list(embed(texts))}
    if sparse := model.layout.sparse:
        vectors = model.run(encodings, SparseVectors(sparse.pooling, sparse.activation))
        hidden |= {EMBEDDING: list(stack_vectors(vectors, model.layout.vector_size).toarray())}
    names = [name for name in names if name not in (HIDDEN_STATES, EMBEDDING)]
    logits = model.run(encodings, HeadLogits(head, len(model.labels)))
    logits = each_token(logits) if HEADS[head].each_token else logits
    if len(names) == 1:
        return hidden | {names[0]: logits}
    return hidden | {name: [values[..., i] for values in logits] for i, name in enumerate(names)}
