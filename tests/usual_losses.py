"""The losses of a run as rows of bert_jax/tasks/usual_losses.csv, by the steps of its log.

    python tests/usual_losses.py runs/tiny wikipedia >> bert_jax/tasks/usual_losses.csv

TEXT names what the run has read.
"""

import csv
import sys
from dataclasses import asdict, fields

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
    return [
        facts | {"step": line["step"], "loss": round(line["mlm_loss"], 3)}
        for line in read(workdir.metrics)
        if line["kind"] == "train"
    ]


if __name__ == "__main__":
    csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n").writerows(
        rows_of(Workdir(sys.argv[1]), sys.argv[2])
    )
