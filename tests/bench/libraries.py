"""The libraries that we are compared with. Nothing else needs them, so they are not dependencies."""

import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError

PACKAGES = {"sklearn": "scikit-learn"}  # module -> its package, if the names differ


def libraries(*names: str) -> list[Any]:
    """Import modules; if one is missing, say how to install it."""
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        roots = dict.fromkeys(name.split(".")[0] for name in names)
        packages = " ".join(PACKAGES.get(root, root.replace("_", "-")) for root in roots)
        raise BertJaxError(
            f"this comparison needs {error.name or packages}: pip install {packages}"
        ) from error


def onnx_session(directory: str, opener: str, output: str):
    """Export a model that `transformers` opens with `opener`, and return a session of ONNX Runtime for it."""
    runtime, _, torch, transformers = libraries("onnxruntime", "onnx", "torch", "transformers")
    model = getattr(transformers, opener).from_pretrained(directory).eval()

    class Exported(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, segments):
            return getattr(self.model(input_ids=ids, attention_mask=mask, token_type_ids=segments), output)

    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "encoder.onnx")
        some = torch.ones((2, 8), dtype=torch.long)
        axes = {name: {0: "rows", 1: "length"} for name in ("ids", "mask", "segments")}
        axes["output"] = axes["ids"] if output == "last_hidden_state" else {0: "rows"}
        torch.onnx.export(
            Exported(), (some, some, 0 * some), path, dynamo=False, opset_version=17,
            input_names=["ids", "mask", "segments"], output_names=["output"], dynamic_axes=axes,
        )  # fmt: skip
        return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def length_batches(model, texts: Sequence[str], rows_at_once: int) -> Iterator[tuple[list[int], dict]]:
    """Yield (indices of texts, arrays for a session), with texts of similar length together."""
    encodings = model.tokenizer.encode(texts, max_length=model.config.max_position_embeddings)
    order = sorted(range(len(texts)), key=lambda i: len(encodings[i].input_ids))
    for start in range(0, len(order), rows_at_once):
        rows = order[start : start + rows_at_once]
        mask = np.zeros((len(rows), len(encodings[rows[-1]].input_ids)), np.int64)
        ids = np.full_like(mask, model.tokenizer.special.pad)
        for row, i in enumerate(rows):
            ids[row, : len(encodings[i].input_ids)] = encodings[i].input_ids
            mask[row, : len(encodings[i].input_ids)] = 1
        yield rows, {"ids": ids, "mask": mask, "segments": np.zeros_like(mask)}
