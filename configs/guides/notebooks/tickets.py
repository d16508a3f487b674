# %% [markdown]
# # Sort support tickets with few labels
#
# You have support tickets and four teams, and nobody has sorted a ticket yet. This notebook starts from a published
# model, sorts tickets by the names of the teams alone, measures what a few labelled tickets add, and ends with a
# classifier that says when it is not sure. It takes some minutes on two cores.

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
# `START` names the model to start from: a directory, or a name on the Hugging Face hub, which is downloaded. `MINUTES`
# bounds the time of the longest step.

# %%
import csv
import os
import random
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import matplotlib.pyplot as plt

import bert_jax

start = os.environ.get("START", "sentence-transformers/all-MiniLM-L6-v2")
minutes = float(os.environ.get("MINUTES", 3))
folder = Path("tickets")
folder.mkdir(exist_ok=True)

# %% [markdown]
# ## The tickets
#
# Replace these by your own. Half of the tickets of each team are for training, the others for measuring: a score means
# something only on texts that the model has not seen.

# %%
tickets = {
    "billing": """I was charged twice this month. The invoice shows the wrong company name. Can I pay by bank transfer?
        My refund has not arrived yet. Why is the total higher than the quote? Please send the receipt for March.
        My card was declined, but it is valid. We need the VAT number on the bill. How do I change to yearly payments?
        The discount code was not applied. Money was taken although I cancelled. Which currency do you bill in?
        The amount due looks wrong to me. I paid, yet I got a reminder. Can we get 30 days to pay? Who is the payee?""",
    "delivery": """My parcel has not arrived. The courier left the box in the rain. Can you ship to Norway?
        The tracking number does not work. I got only two of three boxes. When will my order be sent?
        It went to my old address. The package came open. Can I pick it up myself? The driver never rang.
        The order says delivered, but nothing is here. How long does express shipping take? Customs has it.
        Please leave it with my neighbour. It is at the depot since Monday. Somebody else's order was in the box.""",
    "account": """I forgot my password. How do I change my email address? Please delete my profile and all my data.
        The login code never comes. Somebody else signed in as me. I want to add an administrator.
        I am locked out after three attempts. How do I turn on two-factor sign-in? My user name is misspelt.
        Who can see me? Can two people share one login? The reset link has expired. I cannot sign in on my new phone.
        Please merge my two profiles. How do I log out everywhere? Our former employee still has access.""",
    "software": """The app crashes when I open a photo. Export to PDF gives an empty file. The page loads very slowly.
        Search finds nothing since the update. Dark mode makes the text unreadable. The sync stops at 99 percent.
        Buttons do nothing in Firefox. It shows error 500 when I save. The chart has the wrong dates. Sound is missing.
        The new version freezes on start. Copy and paste loses the formatting. My edits vanish after a reload.
        Printing cuts off the last column. The map does not zoom. Uploading a large video fails.""",
}  # fmt: skip
examples = []
for team, text in tickets.items():
    lines = " ".join(text.split()).replace("? ", "?\n").replace(". ", ".\n").splitlines()
    examples += [(line, team, number % 2 == 0) for number, line in enumerate(lines)]
random.Random(0).shuffle(examples)
train = [(text, team) for text, team, is_train in examples if is_train]
test = [(text, team) for text, team, is_train in examples if not is_train]
print(len(train), "tickets for training,", len(test), "for measuring, such as", test[0])

# %% [markdown]
# ## No labels at all
#
# An embedder turns texts into vectors. A ticket goes to the team whose name, or whose description, is most similar.

# %%
teams = {
    "billing": "an invoice, a payment or a refund",
    "delivery": "a parcel, shipping or a courier",
    "account": "a login, a password or a user profile",
    "software": "an error or a fault in the app",
}
texts = [text for text, _ in test]


def share_right(predicted):
    return sum(guess == team for guess, (_, team) in zip(predicted, test)) / len(test)


embedder = bert_jax.Embedder.load(start, pooling="mean")
accuracy = {}
for name, labels in {"names": list(teams), "descriptions": teams}.items():
    accuracy[name] = share_right(ranked[0].label for ranked in embedder.zero_shot(texts, labels))
    print(f"by {name} alone, {accuracy[name]:.0%} of the tickets reach the right team")

# %% [markdown]
# ## How many labels are enough?
#
# A linear probe is a regression on the embedder's vectors, and takes seconds. It learns from 2, 4 and all 8 tickets of
# each team, and from the descriptions, which count as further examples.

# %%
for count in (2, 4, 8):
    few = [row for team in teams for row in [row for row in train if row[1] == team][:count]]
    # What the run says is shown below, once.
    with redirect_stdout(StringIO()) as lines, redirect_stderr(lines):
        run = bert_jax.finetune(
            start, *zip(*few), method="linear_probe", label_descriptions=teams, report=False
        )
    accuracy[f"{count} labels"] = share_right(run.model.predict(texts))
    print(f"{count} labelled tickets of each team: {accuracy[f'{count} labels']:.0%} right")

# %%
figure, axes = plt.subplots(num="Share of new tickets that reach the right team", figsize=(7, 3), clear=True)
axes.bar_label(axes.bar(list(accuracy), list(accuracy.values())), fmt="{:.0%}")
axes.set(ylabel="right team", ylim=(0, 1.1))
figure.tight_layout()
plt.show()

# %% [markdown]
# One ticket of 32 is three points, so differences of a few points are chance: the interval below says so. Label more
# tickets to measure before you label more to train.

# %% [markdown]
# ## The classifier to keep
#
# Without a method, `finetune` compares a probe with two ways to train the encoder, by cross-validation, and keeps the
# best. `minutes` bounds the time. Its lines say what it does. A second call with the same `workdir` does nothing: the
# run is there.

# %%
run = bert_jax.finetune(
    start, *zip(*train), label_descriptions=teams, minutes=minutes, workdir=folder / "run"
)
classifier = run.model
print(run)

# %% [markdown]
# Measure it on the other tickets, with an interval, and look at what it confuses. The report has more: calibration, the
# most confident errors, facts about the data.

# %%
with open(folder / "test.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("text", "label"), *test])
report = folder / "report"
if not report.exists():
    measured = bert_jax.evaluate(classifier, folder / "test.csv", report=report)
    interval = measured["intervals"]["accuracy"]
    print(f"accuracy {interval['value']:.2f}, 95% interval {interval['low']:.2f} to {interval['high']:.2f}")
print(*sorted(path.name for path in report.iterdir()))

# %%
plt.figure("What the classifier confuses", dpi=150)
plt.imshow(plt.imread(report / "confusion.png"))
plt.axis("off")
plt.show()

# %% [markdown]
# ## Send only what is sure
#
# The probabilities are calibrated on tickets that the model had not learnt from. With `min_precision` the classifier
# abstains when it is not sure enough: `None` goes to a person.

# %%
new = [
    "I cannot log in any more",
    "the parcel is damaged, I want my money back",
    "does it work on Linux?",
    "what a lovely day",
]
try:
    labels = classifier.classify(new, min_precision=0.8)
except bert_jax.BertJaxError as error:  # too few tickets, or too many errors
    print(error)
    labels = classifier.classify(new)
for text, label in zip(new, labels):
    print(f"{text:<45} {label}")

# %% [markdown]
# ## Next
#
# - `classifier.save("my-classifier")` writes a directory that transformers opens, too.
# - [Fine-tune](../finetune.md): several labels, numbers, tags, answers; larger data.
# - [Trust](../trust.md): what the guarantee means, and texts of no known class.
# - [Serve](serving.py): the classifier over HTTP, and without JAX.
