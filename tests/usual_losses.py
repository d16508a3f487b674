"""The losses of a run as rows of bert_jax/tasks/usual_losses.csv, by the steps of its log.

    python tests/usual_losses.py runs/tiny wikipedia >> bert_jax/tasks/usual_losses.csv

TEXT names what the run has read. Only the first pass over it counts: afterwards a loss also tells what is remembered.
"""

import csv
import sys
from dataclasses import asdict, fields
from itertools import accumulate

from bert_jax.data.corpus.directory import Corpus
from bert_jax.tasks.usual_losses import Recipe
from bert_jax.train.log import read
from bert_jax.train.workdir import Workdir

COLUMNS = ("text", "entries", *(field.name for field in fields(Recipe)), "step", "loss")


def rows_of(workdir: Workdir, text: str) -> list[dict]:
    config = workdir.read()["config"]
    model = workdir.layouts()[""].config
    recipe = Recipe(
        model.layers, model.hidden_size, config["data.examples"], config["data.lengths"][0], config["data.batch"],
        config["data.rate"], config["embeddings"],
    )  # fmt: skip
    facts = {"text": text, "entries": model.vocab_size} | asdict(recipe)
    size = sum(len(Corpus(path).train.tokens) for path in config["data.corpora"])
    lines = [line for line in read(workdir.metrics) if line["kind"] == "train"]
    seen = accumulate(line["tokens"] for line in lines)
    return [
        facts | {"step": line["step"], "loss": round(line["mlm_loss"], 3)}
        for line, tokens in zip(lines, seen, strict=True)
        if tokens <= size
    ]


if __name__ == "__main__":
    csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n").writerows(
        rows_of(Workdir(sys.argv[1]), sys.argv[2])
    )
