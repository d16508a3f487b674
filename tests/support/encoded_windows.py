"""Pieces of random labelled texts of each kind of prediction, with the task that learns from them."""

import random

from bert_jax.data.examples.example import Example
from bert_jax.finetuning.encoded_windows import make_encoded_windows
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub import model_directory as hub
from bert_jax.predictions.kind import KINDS
from bert_jax.text.encoding_options import EncodingOptions
from tests.support.texts import random_texts
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER

READING = EncodingOptions(64, overlap=8)


def task_and_windows(name: str, examples, encoding_options=READING, labels=(), **options):
    kind = KINDS[name].from_examples(examples, labels)
    head = KINDS[name].heads[0]
    layout = hub.Layout(ENCODER_CONFIG, heads=(head,), labels=kind.labels, pooler=head == "classify")
    windows = kind.reader.encode(TOKENIZER, [example.text for example in examples], encoding_options)
    return FinetuneTask(layout, kind, **options), make_encoded_windows(kind.targets, examples, windows)


def classify_windows(name):
    rng = random.Random(1)
    names = ("a", "b", "c")
    label = {
        "classes": lambda: rng.choice(names),
        "labels": lambda: tuple(rng.sample(names, rng.randint(0, 3))),
        "number": rng.random,
    }[name]
    examples = [Example(text, label(), "") for text in random_texts(12)]
    return task_and_windows(name, examples, labels=names, smoothing=0.1 * (name == "classes"))


def tag_windows(name):
    rng = random.Random(2)
    names = ("O", "B", "I")
    examples = [
        Example(tuple(t.split()), tuple(rng.choices(names, k=len(t.split()))), "") for t in random_texts(12)
    ]
    return task_and_windows(name, examples, EncodingOptions(16, overlap=4), labels=names)


def answer_windows(name):
    rng = random.Random(3)
    examples = []
    for i, text in enumerate(random_texts(12, (4, 12))):
        words = text.split()
        first = rng.randrange(len(words))
        start = len(" ".join(words[:first])) + bool(first)
        examples.append(Example(("w1 w2", text), ((start, words[first]),) if i % 3 else (), ""))
    return task_and_windows(name, examples)
