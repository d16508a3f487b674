# %% [markdown]
# # A first run on a hosted TPU
#
# This notebook is for a hosted machine with a TPU, of one, four or eight chips. It compares the attention kernels with
# the definition of attention on the chip, times a training step of BERT-base beside what `preflight` predicts from the
# compiled program, and writes a page, `tpu/page.md`. **This package has not run on a TPU yet: please send that page
# back.** It takes some ten minutes. Without a TPU it predicts the step of one v5e chip, skips the rest, and says so.

# %%
# Installs the package where it is missing, from a wheel that you upload beside this notebook.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("bert_jax") is None:
    (wheel,) = Path().glob("bert_jax-*.whl")  # made by `python -m build --wheel`
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"./{wheel}[tpu]"], check=True)

# %% [markdown]
# One process at a time can use a TPU, so this notebook leaves JAX to the commands that it starts.

# %%
import json
import platform

import matplotlib.pyplot as plt

folder = Path("tpu")
folder.mkdir(exist_ok=True)
page = ["# A first run on a TPU", ""]


def run_python(*words):
    """Return the JSON that a Python program prints, or None; its last error stands on the page."""
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        write(
            f"`{' '.join(words)[:80]}` failed: {(ran.stderr.strip().splitlines() or ['no message'])[-1][:500]}"
        )
        return None


def write(*lines):
    print(*lines, sep="\n")
    page.extend([*lines, ""])


# %% [markdown]
# ## The machine

# %%
facts = """
import json, jax, jaxlib
import bert_jax
device, count = jax.devices()[0], jax.device_count()
versions = [package.__version__ for package in (jax, jaxlib, bert_jax)]
print(json.dumps([device.platform, device.device_kind, count, *versions]))
"""
found, kind, count, *versions = run_python("-c", facts) or ("none", "no device", 0, "?", "?", "?")
has_tpu = found == "tpu"
jax, jaxlib, bert_jax = versions
write(
    f"{count} x {kind}; Python {platform.python_version()}, jax {jax}, jaxlib {jaxlib}, bert_jax {bert_jax}"
)
if not has_tpu:
    write("There is no TPU: the kernels and the step are skipped, and the prediction is for one v5e chip.")

# %% [markdown]
# ## The kernels
#
# `splash` is JAX's own kernel, `short` one of this package. Each is compared with the definition of attention (values
# and gradients, dropout's share) and timed beside XLA's attention.

# %%
kernels = run_python("-m", "bert_jax", "check", "--kernels", "--json") if has_tpu else None
if kernels:
    rows = ["| kernel, case | values | gradients | ms | ms of XLA | |", "|---|--:|--:|--:|--:|---|"]
    for name, case in kernels.items():
        differences = (
            f"{case[part]:.1%}" if case[part] is not None else "-" for part in ("values", "gradients")
        )
        times = (f"{1e3 * case[part]:.2f}" if case[part] else "-" for part in ("seconds", "xla_seconds"))
        rows.append(f"| {name} | {' | '.join([*differences, *times])} | {case['fault'] or 'right'} |")
    write(*rows)

# %% [markdown]
# ## The step
#
# `preflight` compiles the step for such a machine without one, and predicts how long it takes: `least` if computing and
# memory traffic overlap, `serial` if nothing does. `bench train` then takes the step.

# %%
chips = {"TPU v5 lite": "v5e", "TPU v6 lite": "v6e"}
sides = {1: "1x1", 4: "2x2", 8: "2x4"}
topology = f"{chips.get(kind, kind)}:{sides.get(count, count)}" if has_tpu else "v5e:1x1"
batch_size = 32 * (count if has_tpu else 1)
config = ["--config", "configs/pretrain.py:base", f"--config.data.batch_size={batch_size}", "--json"]
config += ["--config.data.lengths=512", "--config.data.length_ratios=1"]
predicted = run_python("-m", "bert_jax", "preflight", "--topology", topology, *config)
measured = run_python("-m", "bert_jax", "bench", "train", *config) if has_tpu else None
times = {}
if predicted:
    seconds = predicted["phases"][0]["seconds"]
    times |= {f"predicted, {bound}": 1e3 * seconds[bound] for bound in ("least", "serial")}
if measured:
    (figures,) = measured["figures"].values()
    times["measured"] = 1e3 * figures["seconds"]
write(
    f"A step of BERT-base on {topology}, {batch_size} rows of 512 tokens:",
    "",
    *(f"- {name}: {milliseconds:.1f} ms" for name, milliseconds in times.items()),
)

# %%
figure, axes = plt.subplots(num="A step of BERT-base: predicted and measured", figsize=(6, 2), clear=True)
axes.barh(list(times), list(times.values()))
axes.invert_yaxis()
axes.set_xlabel("milliseconds")
figure.tight_layout()
figure.savefig(folder / "step.png")
plt.show()

# %% [markdown]
# ## The page to send back

# %%
(folder / "page.md").write_text("\n".join(page), encoding="utf-8")
print(f"{folder / 'page.md'} and {folder / 'step.png'} hold what was found")

# %% [markdown]
# ## Next
#
# - [Pre-train](../pretrain.md): the recipes.
# - [Launch](../../../launch/README.md): slices of several hosts, and their first hour, which checks much more.
