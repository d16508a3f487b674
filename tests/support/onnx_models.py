"""Small models of every family with random weights, what they compute for texts, and the same from their ONNX graphs.

Ours reads two texts in each row, and a graph each text in a row of its own, so that one compiled program serves the
heads of single texts and those of pairs.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np
import onnx
import onnxruntime
from flax.traverse_util import unflatten_dict

from bert_jax.export.model_graph import make_model
from bert_jax.hub.layout import Layout
from bert_jax.hub.onnx_files import input_names
from bert_jax.models.bert import Bert
from bert_jax.models.heads import HEADS
from tests.support.families import DEBERTA_CONFIGS, DEBERTA_V2_CONFIGS, FAMILY_CONFIGS, family_layout

TOLERANCE = 1e-5
LABELS = ("bad", "fair", "good")
LENGTHS = (7, 12, 30, 3, 1, 1, 2, 19)  # of the texts; two at a time are pairs
LONGEST = max(LENGTHS)
# Texts of each batch, two by two; the longest have 12, 30, 19 and 1 tokens.
BATCHES = ([0, 1], [4, 5, 2, 3], [6, 7, 0, 1, 6, 7], [4, 5])

BERT = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 32,
}  # fmt: skip
SHORT = {"vocab_size": 61, "max_position_embeddings": 32}
OTHER_THETAS = {
    "full_attention": {"rope_type": "default", "rope_theta": 77.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 9.0},
}
# What makes a family's model differ most from BERT's.
ODDITIES = {
    "electra": {"tie_word_embeddings": False, "hidden_act": "relu"},
    "albert": {"num_hidden_layers": 4, "num_hidden_groups": 2},
    "modernbert": {
        "classifier_pooling": "mean",
        "hidden_activation": "silu",
        "rope_parameters": OTHER_THETAS,
    },
}
CASES: dict[str, tuple[str, dict]] = {
    "bert": ("bert", BERT | {"type_vocab_size": 3, "hidden_act": "gelu_new"}),
    "roberta": ("roberta", BERT | {"pad_token_id": 1, "type_vocab_size": 1}),
    "camembert": ("camembert", BERT | {"pad_token_id": 1, "type_vocab_size": 1}),
    "xlm-roberta": ("xlm-roberta", BERT | {"pad_token_id": 1, "type_vocab_size": 1}),
    "static": ("static", {"vocab_size": 80, "hidden_dim": 32, "max_length": 64}),
    **{name: (name, config | SHORT | ODDITIES.get(name, {})) for name, config in FAMILY_CONFIGS.items()},
    "modernbert, plain": ("modernbert", FAMILY_CONFIGS["modernbert"] | SHORT),
    **{f"deberta-v2, {name}": ("deberta-v2", config | SHORT) for name, config in DEBERTA_V2_CONFIGS.items()},
    **{f"deberta, {name}": ("deberta", config | SHORT) for name, config in DEBERTA_CONFIGS.items()},
}  # fmt: skip


@dataclass(frozen=True)
class SmallModel:
    layout: Layout  # with all heads of its family
    params: dict

    @classmethod
    def of_case(cls, name: str) -> "SmallModel":
        family, published = CASES[name]
        layout = family_layout(family, published, labels=LABELS)
        if layout.config.block == "disentangled" and layout.config.positions == "none":
            # with the table that only the enhanced mask decoder reads
            layout = replace(layout, config=layout.config.replace(positions="decoder"))
        heads = tuple(layout.family.heads)
        layout = replace(layout, heads=heads, pooler=True)
        return cls(layout, random_params(layout))

    def with_head(self, head: str | None) -> Layout:
        return replace(self.layout, heads=() if head is None else (head,), pooler=False)

    def session(self, head: str | None = None) -> onnxruntime.InferenceSession:
        model = make_model(self.with_head(head), self.params)
        onnx.checker.check_model(model, full_check=True)
        return open_session(model.SerializeToString())


def random_params(layout: Layout) -> dict:
    """Weights large enough that every part of the model shows in its outputs."""
    random = np.random.RandomState(0)
    flat = {}
    for path, shape in layout.shapes().items():
        flat[path] = np.float32(0.2 * random.standard_normal(shape) + path.endswith("scale"))
    return unflatten_dict(flat, sep="/")


def open_session(model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns of weights that only a part of the lengths reads
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def random_texts(layout: Layout) -> list[dict[str, np.ndarray]]:
    random = np.random.RandomState(1)
    return [
        {
            "input_ids": random.randint(5, layout.config.vocab_size, length),
            "token_type_ids": random.randint(0, max(layout.config.type_vocab_size, 1), length),
        }
        for length in LENGTHS
    ]


@partial(jax.jit, static_argnums=0)
def compute(module: Bert, params: dict, batch: dict) -> dict:
    return module.apply({"params": params}, batch)


def compute_with_jax(model: SmallModel, texts: list[dict]) -> dict[str, list[np.ndarray]]:
    """Return the hidden states and the logits of each head, for each text or pair."""
    rows = len(texts) // 2
    batch = {
        name: np.zeros((rows, 2 * LONGEST), np.int32)
        for name in ("input_ids", "token_type_ids", "attention_mask", "segment_ids")
    }
    batch["cls_positions"] = np.zeros((rows, 2), np.int32)
    places = []
    for number, text in enumerate(texts):
        row, second = divmod(number, 2)
        start = len(texts[number - 1]["input_ids"]) if second else 0
        here = slice(start, start + len(text["input_ids"]))
        places.append((row, second, here))
        for name, values in text.items():
            batch[name][row, here] = values
        batch["attention_mask"][row, here] = 1
        batch["segment_ids"][row, here] = 1 + second
        batch["cls_positions"][row, second] = start
    outputs = jax.device_get(compute(model.layout.module, model.params, batch))
    result = {"hidden": [outputs["hidden"][row, here] for row, _, here in places]}
    for name in model.layout.heads:
        head = HEADS[name]
        if head.compares:
            result[name] = list(outputs[name])
        elif head.each_token:
            result[name] = [outputs[name][row, here] for row, _, here in places]
        else:
            result[name] = [outputs[name][row, second] for row, second, _ in places]
    return result


def graph_inputs(layout: Layout, texts: list[dict]) -> dict[str, np.ndarray]:
    """Return the inputs of a batch, padded to its longest text."""
    length = max(len(text["input_ids"]) for text in texts)
    batch = {name: np.zeros((len(texts), length), np.int64) for name in input_names(layout)}
    for row, text in enumerate(texts):
        padded = text | {"attention_mask": np.ones_like(text["input_ids"])}
        for name in batch:
            batch[name][row, : len(text["input_ids"])] = padded[name]
    return batch


def run_graph(session, layout: Layout, texts: list[dict]) -> dict[str, np.ndarray]:
    """Return the outputs by name for a batch."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, graph_inputs(layout, texts)), strict=True))


def assert_outputs_are_ours(head: str | None, outputs: dict, expected: dict, numbers: list[int]) -> None:
    names, values = list(outputs), list(outputs.values())
    if head == "answer":
        assert names == ["start_logits", "end_logits"]
        values = [np.stack(values, axis=-1)]
    else:
        assert names == (["last_hidden_state"] if head is None else ["logits"])
    compares = head is not None and HEADS[head].compares
    if compares:  # numbers of pairs
        numbers = [first // 2 for first in numbers[::2]]
    each_token = head is None or HEADS[head].each_token
    assert len(values[0]) == len(numbers)
    for number, row in zip(numbers, values[0], strict=True):
        ours = expected["hidden" if head is None else head][number]
        row = row[: len(ours)] if each_token else row
        np.testing.assert_allclose(row, ours, atol=TOLERANCE, rtol=0, err_msg=head)
