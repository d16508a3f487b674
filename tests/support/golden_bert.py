"""Writes golden.json beside this file: what `transformers` computes from weights that a seed makes.

    python -m tests.support.golden_bert

The file keeps the check against the reference alive where torch is not installed. It holds names and shapes of the
weights, never weights.
"""

import json
from pathlib import Path

import numpy as np

GOLDEN_FILE = Path(__file__).with_name("golden.json")
GOLDEN_SEED = 7
GOLDEN_CONFIGS = {
    "BertForPreTraining": {
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
        "type_vocab_size": 3, "max_position_embeddings": 20,
    },
    "RobertaForSequenceClassification": {
        "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": 47,
        "type_vocab_size": 1, "max_position_embeddings": 24, "pad_token_id": 1, "layer_norm_eps": 1e-5, "num_labels": 4,
    },
}  # fmt: skip


def write_golden():
    import torch
    import transformers

    from tests.support.seeded_arrays import seeded_batch, seeded_tensors
    from tests.support.transformers_models import transformers_inputs, transformers_mlm_labels

    golden = {"seed": GOLDEN_SEED, "models": {}}
    for class_name, fields in GOLDEN_CONFIGS.items():
        model_class = getattr(transformers, class_name)
        config = model_class.config_class(**fields)
        model = model_class(config).eval()
        shapes = {name: list(p.shape) for name, p in model.named_parameters()}
        with torch.no_grad():
            for name, value in seeded_tensors(shapes, GOLDEN_SEED).items():
                model.get_parameter(name).copy_(torch.from_numpy(value))
        batch = seeded_batch(3, 18, fields["vocab_size"], fields["type_vocab_size"], 4, GOLDEN_SEED)
        if class_name == "BertForPreTraining":
            labels = {
                "labels": transformers_mlm_labels(batch),
                "next_sentence_label": torch.from_numpy(batch["labels"]),
            }
        else:
            batch["input_ids"] = np.where(
                batch["attention_mask"] > 0, batch["input_ids"], fields["pad_token_id"]
            )
            labels = {"labels": torch.from_numpy(batch["labels"])}
        answer = model(**transformers_inputs(batch), **labels, output_hidden_states=True)
        answer.loss.backward()
        golden["models"][class_name] = {
            "config": json.loads(config.to_json_string()) | {"architectures": [class_name]},
            "shapes": shapes,
            "loss": answer.loss.item(),
            "hidden": answer.hidden_states[-1].detach().numpy().round(7).tolist(),
            # Of each gradient: its norm, and its product with a seeded direction, which feels every element.
            "gradients": {
                name: summarize_gradient(name, p.grad.numpy()) for name, p in model.named_parameters()
            },
        }
    GOLDEN_FILE.write_text(json.dumps(golden) + "\n")


def summarize_gradient(name: str, gradient: np.ndarray) -> list[float]:
    direction = np.random.RandomState(len(name)).standard_normal(gradient.shape)
    return [float(np.linalg.norm(gradient)), float((gradient * direction).sum())]


if __name__ == "__main__":
    write_golden()
