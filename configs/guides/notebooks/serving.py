# %% [markdown]
# # Serve a model, with and without JAX
#
# You have a classifier, and another program is to ask it. This notebook trains a small classifier in seconds, serves it
# over HTTP, asks it as a client does, and exports it to ONNX in float32 and int8, for machines without JAX. It measures
# what each costs and gains. It takes some minutes on two cores.

# %%
# Installs the package where it is missing, from a wheel that you upload beside this notebook.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("bert_jax") is None:
    (wheel,) = Path().glob("bert_jax-*.whl")  # made by `python -m build --wheel`
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"./{wheel}[serve,onnx]"], check=True)

# %% [markdown]
# `START` names the model to start from: a directory, or a name on the Hugging Face hub, which is downloaded.

# %%
import csv
import json
import os
import shutil
import socket
import time
import urllib.request

import matplotlib.pyplot as plt

import bert_jax

start = os.environ.get("START", "sentence-transformers/all-MiniLM-L6-v2")
folder = Path("serving")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()

# %% [markdown]
# ## A classifier
#
# Any classifier will do: [the notebook on tickets](tickets.py) makes a better one. The last third of the reviews
# measures it.

# %%
reviews = {
    "good": """arrived early and works well, exactly what I wanted, my children love it, best purchase this year,
        very comfortable shoes, great sound for the price, the staff was friendly, easy to set up, I would buy it again,
        beautiful colours, tastes wonderful, solid and well made, a joy to read, fits perfectly, quick reply""",
    "bad": """broke after one day, far too small, the manual is useless, never buying here again, smells terrible,
        stopped charging, much too loud, the paint came off, rude on the phone, a waste of money, tastes like soap,
        the zip is stuck, boring from start to end, does not fit at all, nobody ever answered""",
}
examples = [(review.strip(), label) for label, text in reviews.items() for review in text.split(",")]
train, test = [row for n, row in enumerate(examples) if n % 3], examples[::3]
with open(folder / "test.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("text", "label"), *test])
run = bert_jax.finetune(start, *zip(*train), method="linear_probe", report=False, workdir=folder / "run")
model = folder / "run" / "model"
print(run)

# %% [markdown]
# ## Serve it
#
# In a terminal this is `bert-jax serve reviews=serving/run/model`. The server listens on this machine alone, and
# answers `/health` with 200 as soon as it is ready.

# %%
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
bert_jax_command = [sys.executable, "-m", "bert_jax"]
command = [*bert_jax_command, "serve", f"reviews={model}", "--port", str(port), "--no-warm-up"]
server = subprocess.Popen(command)
address = f"http://127.0.0.1:{port}"


def ask(route, body=None):
    request = urllib.request.Request(
        address + route, body and json.dumps(body).encode(), {"content-type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=60).read()


begun = time.monotonic()
while server.poll() is None and time.monotonic() < begun + 300:
    try:
        ask("/health")
        break
    except OSError:  # it is starting
        time.sleep(0.2)
print(f"ready after {time.monotonic() - begun:.0f} s")

# %%
answers = json.loads(ask("/classify", {"inputs": ["so good!", "the worst ever"], "probabilities": True}))
print(json.dumps(answers, indent=1))

# %% [markdown]
# In production, leave `--no-warm-up` out: every program is then compiled before the first request. Clients of
# text-embeddings-inference, OpenAI, Cohere and Hugging Face need only the address.

# %%
server.terminate()
print("the server ended with exit code", server.wait(60))

# %% [markdown]
# ## Without JAX
#
# The export is a directory for ONNX Runtime, which starts sooner and needs less memory. int8 makes the file smaller and
# the answers faster, and changes them a little: look how much.

# %%
export = f"export {model} --format onnx --quantize auto --output {folder / 'onnx'}"
subprocess.run([*bert_jax_command, *export.split()], check=True)
texts = [text for text, _ in test]
by_jax = run.model.predict_proba(texts)
for dtype in ("float32", "int8"):
    exported = bert_jax.Classifier.load(folder / "onnx", engine="onnxruntime", dtype=dtype)
    difference = abs(exported.predict_proba(texts) - by_jax).max()
    print(f"{dtype}: the probabilities differ by {difference:.1g} at most")

# %% [markdown]
# ## Which engine is the right one here?
#
# `bench engines` measures the score and the speed of each on this machine.

# %%
bench = [*bert_jax_command, "bench", "engines", model, "--data", folder / "test.csv", "--texts", "30"]
measured = subprocess.run(
    [*bench, "--picture", folder / "engines.png"], check=True, stdout=subprocess.PIPE, text=True
)
print(measured.stdout)

# %%
plt.figure("Score and speed of each engine", dpi=150)
plt.imshow(plt.imread(folder / "engines.png"))
plt.axis("off")
plt.show()

# %% [markdown]
# ## Next
#
# - [Serve](../serve.md): several models, indexes, limits, metrics, an image for containers.
# - [Convert](../convert.md#compute-without-jax): programs without JAX, and what int8 changes.
