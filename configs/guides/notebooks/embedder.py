# %% [markdown]
# # Train an embedder on your own pairs
#
# You have pairs of texts that belong together: questions and answers, titles and articles, or, as here, descriptions
# and the code of functions. A published embedder knows little of your kind of text. This notebook trains it on a
# thousand pairs, and measures whether it finds more, beside keywords. It takes some minutes on two cores.

# %%
# Installs the package where it is missing, from a wheel that you upload beside this notebook.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("bert_jax") is None:
    (wheel,) = Path().glob("bert_jax-*.whl")  # made by `python -m build --wheel`
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"./{wheel}"], check=True)

# %% [markdown]
# `START` names the embedder to start from: a directory, or a name on the Hugging Face hub, which is downloaded. `PAIRS`
# says how many pairs it learns from.

# %%
import ast
import json
import os
import random
import shutil
import sysconfig

import matplotlib.pyplot as plt

import bert_jax

start = os.environ.get("START", "sentence-transformers/all-MiniLM-L6-v2")
most_pairs = int(os.environ.get("PAIRS", 1000))
folder = Path("embedder")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()

# %% [markdown]
# ## The pairs
#
# Python's standard library has thousands of functions with a description. The first line of the description belongs to
# the code without it. The files are read, not imported. Replace this cell by your own pairs: `(query, document)`.


# %%
def find_pairs(path):
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except SyntaxError:  # a template
        return
    for node in nodes:
        description = isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
        if description and len(node.body) > 1 and len(description.splitlines()[0].split()) > 3:
            node.body = node.body[1:]  # without the description
            yield description.splitlines()[0], ast.unparse(node)[:400]


library = Path(sysconfig.get_path("stdlib"))
paths = [path for path in sorted(library.rglob("*.py")) if not {"test", "site-packages"} & {*path.parts}]
random.Random(1).shuffle(paths)
test, train = [], []
for path in paths:  # a module is for training or for measuring, never for both
    part = test if len(test) < most_pairs / 3 else train
    part += find_pairs(path)
    if len(train) >= most_pairs:
        break
train = train[:most_pairs]
print(len(train), "pairs for training,", len(test), "for measuring, such as\n")
print(*test[0], sep="\n\n")

# %% [markdown]
# ## Train
#
# In each batch, the documents of the other pairs are the wrong answers. The result is a mean of the embedder that it
# started from and of the trained one: a part of the pairs, which is set aside, chooses the shares.

# %%
with open(folder / "pairs.jsonl", "w", encoding="utf-8") as file:
    file.writelines(json.dumps({"query": query, "document": document}) + "\n" for query, document in train)
run = bert_jax.train(
    "embed",
    init=start,
    data={"train": folder / "pairs.jsonl", "max_length": 96},
    epochs=1,
    workdir=folder / "run",
)

# %% [markdown]
# ## Does it find more?
#
# Each description looks for its function among those of other modules: with keywords (BM25), with the embedder as it
# was published, and with the trained one. nDCG is 1 if the right function always comes first; the 95 % interval of a
# difference tells whether it is more than chance.

# %%
collection = folder / "collection"
collection.mkdir()
corpus = [json.dumps({"_id": f"d{number}", "text": text}) for number, (_, text) in enumerate(test)]
queries = [json.dumps({"_id": f"q{number}", "text": text}) for number, (text, _) in enumerate(test)]
judgements = ["query-id\tcorpus-id\tscore", *(f"q{number}\td{number}\t1" for number in range(len(test)))]
for name, lines in {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels.tsv": judgements}.items():
    (collection / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

for name, other in {"keywords": "bm25", "published": start}.items():
    compared = bert_jax.compare(other, folder / "run" / "model", collection, report=folder / f"report-{name}")
    difference = compared["differences"]["ndcg@10"]
    print(
        f"trained - {name}: {difference['value']:+.3f}",
        f"({difference['low']:+.3f} to {difference['high']:+.3f})",
    )

# %%
plt.figure("Functions found among the first hits: A, the published embedder, and B, the trained one", dpi=150)
plt.imshow(plt.imread(folder / "report-published" / "recall.png"))
plt.axis("off")
plt.show()

# %% [markdown]
# ## Look at a query

# %%
trained = bert_jax.Embedder.load(folder / "run" / "model")
published = bert_jax.Embedder.load(start, pooling="mean")
query = "Remove a directory with everything that is in it."
for name, embedder in {"published": published, "trained": trained}.items():
    similarities = embedder.similarity([query], [text for _, text in test])[0]
    best = sorted(range(len(test)), key=lambda number: -similarities[number])[:3]
    print(f"{name}:", *(test[number][1].splitlines()[0] for number in best), sep="\n    ")

# %% [markdown]
# ## Next
#
# - [Train an embedder](../embed.md): scores, hard negatives, other losses, larger batches.
# - [Search your own documents](search.py) with it: `Index.build(documents, "index",
#   model="embedder/run/model")`.
