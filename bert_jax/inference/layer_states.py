"""The hidden states and attention weights that an encoder's layers compute for texts."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.computations import AttentionWeights, Computation, HiddenStates, LayerStates
from bert_jax.inference.pipeline import ModelInputs, TextPipeline
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

ALL = "all"
Layers = int | Sequence[int] | str  # the number of a layer, several, or ALL
TEXTS_AT_ONCE = 16  # texts computed at a time: the outputs of several layers take much memory


class StatesPipeline(TextPipeline[np.ndarray]):
    """Computes the hidden states of a text's tokens, [L, D], or [layers, L, D] of several `layers`."""

    def __init__(
        self, model: Runner, layers: Layers | None = None, truncated: TruncationCounter | None = None
    ):
        wanted: Computation = HiddenStates()
        self.place: int | slice = slice(None)
        if layers is not None:
            chosen, place = parse_layers(layers, model.config.num_hidden_layers + 1)
            wanted, self.place = LayerStates(chosen), place
        self.of_layers = layers is not None
        super().__init__(model, wanted, truncated or TruncationWarner(model.config.max_position_embeddings))

    def preprocess(self, texts: Sequence) -> ModelInputs:
        encodings = self.model.tokenizer.encode(texts, max_length=self.truncated.max_length)
        return ModelInputs(texts, encodings, encodings)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterator[np.ndarray]:
        for states, encoding in zip(outputs, inputs.rows, strict=True):
            length = len(encoding.input_ids)
            yield states[self.place, :length] if self.of_layers else states[:length]


def hidden_states(model: Runner, texts, layers: Layers | None = None):
    return map_texts(texts, StatesPipeline(model, layers), at_once=0 if layers is None else TEXTS_AT_ONCE)


def attentions(model: Runner, texts, layers: Layers = ALL):
    chosen, place = parse_layers(layers, model.config.num_hidden_layers)

    def read(encodings):
        for weights, encoding in zip(model.run(encodings, AttentionWeights(chosen)), encodings, strict=True):
            length = len(encoding.input_ids)
            yield weights[place, :, :length, :length]

    return model.map_encodings(texts, read, at_once=TEXTS_AT_ONCE)


def parse_layers(layers, count: int) -> tuple[tuple[int, ...], int | slice]:
    """Return the layers, as numbers from 0, and the index into them: 0 for a single layer, a full slice for several."""
    if isinstance(layers, str):
        if layers != ALL:
            raise BertJaxError(f'layers must be numbers or "{ALL}", not {layers!r:.40}')
        return tuple(range(count)), slice(None)
    several = isinstance(layers, Sequence | np.ndarray | range)
    numbers = list(layers) if several else [layers]
    for number in numbers:
        check_number(number, "layers", is_whole=True, allowed=Range(-count, count - 1))
    if not numbers:
        raise BertJaxError(f'layers is empty; give numbers from 0 to {count - 1}, or "{ALL}"')
    return tuple(int(number) % count for number in numbers), slice(None) if several else 0
