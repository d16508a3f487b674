"""Lines of a file or of standard input, through a model: what the verbs `embed`, `fill-mask` and `import` run."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax.data.arrays import growing_array
from bert_jax.errors import BertJaxError
from bert_jax.inference.model import load
from bert_jax.text.lines import read_lines


def embed(
    model, source: str = "-", output: str | None = None, prompt: str | None = None, long: str = "cut"
) -> None:
    """A vector for each line: rows of a .npy file, or JSON arrays on standard output."""
    if output is not None and not output.endswith(".npy"):
        raise BertJaxError(f"--output {output} should end in .npy, the one format it is written in")
    vectors = load(model).embed(read_lines(source), prompt=prompt, long=long)
    if output is None:
        for vector in vectors:
            print(json.dumps([round(float(x), 7) for x in vector]))
    else:
        print(f"{write_rows(Path(output), vectors):,} vectors in {output}", file=sys.stderr)


def fill_mask(model, texts: Sequence[str], top: int = 5, as_json: bool = False) -> None:
    for text in load(model).fill_mask(iter(texts) if texts else read_lines("-"), top=top):
        several = isinstance(text[0], list)
        for fillings in text if several else [text]:
            for filled in fillings:
                found = {"token": filled.token, "score": round(filled.score, 6), "text": filled.text}
                print(
                    json.dumps(found, ensure_ascii=False) if as_json else f"{filled.score:.4f}  {filled.text}"
                )


def convert(source, destination) -> None:
    """Any directory that `load` opens, as a safetensors directory."""
    if Path(destination).is_dir() and any(Path(destination).iterdir()):
        raise BertJaxError(f"{destination} is not empty; name a new directory")
    model = load(source)
    model.save(destination)
    heads = ", ".join(model.layout.heads) or "no head"
    print(f"{destination}: {model.layout.family.model_type} with {heads}, as transformers opens it")


def write_rows(path: Path, rows) -> int:
    with growing_array(path, np.float32) as array:
        for row in rows:
            array.append(row[None])
        if not array.rows:
            raise BertJaxError("no line to embed: the input is empty")
    return array.rows
