"""Labelled texts in files, and as they are read from them."""

import json

from bert_jax.data.examples import labelled_texts
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.predictions.kind import KINDS

PASSAGE = "Ann sleeps. 😀 Ann wakes."


def read_texts(spec, columns=AUTODETECT, kind="classes", most=0, need_label=True):
    return labelled_texts.read_labelled_texts(
        spec, columns, KINDS[kind].reader.label_format, most, need_label
    )


def write_source(tmp_path, name: str, content) -> str:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, content)), "utf-8")
    return str(path)


def texts_and_labels(examples):
    return [(example.text, example.label) for example in examples]


def article(*questions, title="Ann"):
    return {"title": title, "paragraphs": [{"context": PASSAGE, "qas": list(questions)}]}


def question(id="q", start=0, text="Ann", **more):
    return {"id": id, "question": "Who?", "answers": [{"text": text, "answer_start": start}], **more}


def squad(tmp_path, *articles) -> str:
    return write_source(tmp_path, "dev.json", json.dumps({"version": "x", "data": articles}))
