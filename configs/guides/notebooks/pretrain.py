# %% [markdown]
# # A BERT from your own text
#
# You have text of a kind that published models have not seen, and want an encoder that knows it. This notebook learns a
# vocabulary from raw text, turns the text into a corpus, pre-trains a small BERT, and asks it for missing words. The
# text is what every Python has: its own documentation. It takes about ten minutes on two cores. If there is a published
# model for your language, [continuing from it](../pretrain.md#continue-from-a-published-model) learns more from less.

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
# `STEPS` is the number of steps, and `MODULES` the largest number of Python modules whose documentation is read. More
# are better, and take longer.

# %%
import ast
import os
import re
import sysconfig
from pydoc_data.topics import topics

import matplotlib.pyplot as plt

import bert_jax

steps = int(os.environ.get("STEPS", 600))
most_modules = int(os.environ.get("MODULES", 10_000))
folder = Path("pretrain")
folder.mkdir(exist_ok=True)

# %% [markdown]
# ## The text
#
# Plain text, with a blank line between documents: the chapters of the language reference, and the docstrings of the
# installed packages, one document for each module. Replace this cell by your own files.


# %%
def not_a_test(path):
    return not any("test" in part or part == "site-packages" for part in path.parts)


def read_docstrings(path):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    try:
        nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, documented)]
    except (SyntaxError, ValueError):  # a template
        return ""
    return "\n".join(filter(None, map(ast.get_docstring, nodes)))


library, packages = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
folders = [library, *(packages / name for name in ("jax", "matplotlib", "numpy", "scipy"))]
paths = [
    path for root in folders for path in sorted(root.rglob("*.py")) if not_a_test(path.relative_to(root))
]
documents = [*topics.values(), *map(read_docstrings, paths[:most_modules])]
text = folder / "text.txt"
blank_line = re.compile(r"\n\s*\n")
text.write_text("\n\n".join(blank_line.sub("\n", document) for document in documents), encoding="utf-8")
print(f"{len(documents):,} documents, {text.stat().st_size / 1e6:.1f} MB of text")

# %% [markdown]
# ## A vocabulary, and a corpus
#
# The vocabulary has the words and parts of words that are frequent in this text. The corpus holds the text as ids.

# %%
if not (folder / "corpus").exists():
    bert_jax.train_tokenizer(text, folder / "vocab", size=4096)
    counts = bert_jax.prepare(text, folder / "vocab", folder / "corpus", validation_ratio=0.03)
    print(counts["train"])

# %% [markdown]
# ## Pre-train
#
# The recipe `tiny,laptop` masks words and learns to predict them, with short rows that suit a small machine. The run
# first says what it will do. If it is stopped, the same call goes on from the last checkpoint.

# %%
run = bert_jax.train(
    "configs/pretrain.py:tiny,laptop",
    data={"corpora": folder / "corpus"},
    steps=steps,
    workdir=folder / "run",
)

# %% [markdown]
# The loss of words that the model has not seen falls, and the share of masked words that it predicts rises. If the loss
# of training falls alone, the text is too small.

# %%
plt.figure("Losses and scores by step", dpi=150)
plt.imshow(plt.imread(folder / "run" / "curves.png"))
plt.axis("off")
plt.show()

# %% [markdown]
# ## Ask it for missing words
#
# After some minutes a small model knows the frequent words and phrases of its text, not the world.

# %%
model = bert_jax.MaskedLM.load(folder / "run" / "model")
for sentence in [
    "return the [MASK] of the array .",
    "raise an [MASK] if the file does not exist .",
    "a list [MASK] strings",
]:
    filled = model.fill_mask(sentence, top_k=4)
    print(f"{sentence:<45}", *(f"{word.token} {word.score:.2f}" for word in filled), sep="  ")

# %% [markdown]
# ## Next
#
# - [Pre-train](../pretrain.md): larger recipes, GPUs and TPUs, a teacher, continuing from a published model.
# - [Tickets with few labels](tickets.py): `START=pretrain/run/model` fine-tunes this model.
