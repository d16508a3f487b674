# %% [markdown]
# # Search your own documents
#
# You have a folder of documents, and want to find passages by what they mean and not only by their words. This notebook
# indexes Python's language reference, which every Python has, searches it in three ways, and measures which way is
# best. It takes a minute or two on two cores.

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
# `START` names the embedder: a directory, or a name on the Hugging Face hub, which is downloaded.

# %%
import json
import os
import shutil
from pydoc_data.topics import topics

import matplotlib.pyplot as plt

import bert_jax

start = os.environ.get("START", "sentence-transformers/all-MiniLM-L6-v2")
folder = Path("search")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()

# %% [markdown]
# ## The documents
#
# `Index.build` takes a path to a folder of texts, Markdown or HTML, or documents in memory, as here. Replace the next
# line by `documents = Path("path/to/my/documents")`.

# %%
documents = [{"id": name, "title": name, "text": text} for name, text in topics.items()]
print(len(documents), "chapters, such as", documents[0]["id"], "\n\n", documents[0]["text"][:300], "...")

# %%
index = bert_jax.Index.build(documents, folder / "index", model=start)

# %% [markdown]
# ## Search
#
# Long chapters were split into passages. A hit is a passage, with its place in its document. By default the index
# searches by keywords (BM25) and by vectors, and adds the two scores; `retrievers` names one of them.

# %%
question = "compare two things for being the very same object"
for retrievers in (["keywords"], ["vectors"], None):
    print(*(retrievers or ["both"]))
    for hit in index.search(question, top_k=2, retrievers=retrievers):
        print(f"  {hit.score:.2f}  {hit.id}, characters {hit.start} to {hit.end}")
        print("       ", " ".join(hit.text.split())[:90], "...")

# %% [markdown]
# ## Which way is best?
#
# Questions whose chapter you know tell. A dozen show a large difference, as here; take a few dozen of your own, from
# people who really ask. They stand in a folder of three files.

# %%
questions = {
    "stop the program with a message if a condition does not hold": "assert",
    "give a value a name": "assignment",
    "wait for something without blocking the others": "await",
    "are the two things the very same object": "comparisons",
    "leave a loop before it ends": "break",
    "repeat something for every item of a list": "for",
    "what happens when something goes wrong": "exceptions",
    "make my objects behave like numbers": "numeric-types",
    "take a class as the basis of another one": "class",
    "how do I write a text with values inside it": "formatstrings",
    "remove a name again": "del",
    "react to a key that is not in the mapping": "typesmapping",
}
collection = folder / "collection"
collection.mkdir()


def write_lines(name, rows):
    (collection / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


write_lines("corpus.jsonl", ({"_id": d["id"], "title": d["title"], "text": d["text"]} for d in documents))
write_lines("queries.jsonl", ({"_id": f"q{number}", "text": text} for number, text in enumerate(questions)))
judgements = [f"q{number}\t{name}\t1\n" for number, name in enumerate(questions.values())]
(collection / "qrels.tsv").write_text("".join(["query-id\tcorpus-id\tscore\n", *judgements]))

# %%
measured = bert_jax.evaluate_index(index, collection, report=folder / "report")
for way, facts in measured["ways"].items():
    print(f"{way:<24} nDCG@10 {facts['metrics']['ndcg@10']['value']:.3f}")

# %% [markdown]
# nDCG is 1 if the right chapter always comes first. The lines of the picture are 95 % intervals: long ones, with few
# questions.

# %%
plt.figure("nDCG of searches by keywords, by vectors and by both", dpi=150)
plt.imshow(plt.imread(folder / "report" / "quality.png"))
plt.axis("off")
plt.show()

# %% [markdown]
# ## Documents come and go
#
# What is added is found at once, and nothing is encoded twice.

# %%
print(index.add([("our-rules", "Name a test after what it shows. Delete code that nobody calls.")]))
print(index.search("how are tests named?", top_k=1)[0].id)
print(index.remove(["our-rules"]))

# %% [markdown]
# ## Next
#
# - [Search](../search.md): rerank the best hits with a cross-encoder, export to a search engine.
# - [An embedder trained on your own pairs](embedder.py), if vectors find too little.
# - [Serve](../serve.md): `bert-jax serve docs=search/index` answers over HTTP.
