"""Files of rows, as people label them."""

import csv
import json


def write_texts_csv(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text, _ in rows)])
    return path


def write_jsonl(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_squad(path, asked):
    """[(question, passage, answers or [])] as SQuAD 2.0 writes them."""
    paragraphs = [
        {
            "context": passage,
            "qas": [
                {
                    "id": str(i), "question": question, "is_impossible": not answers,
                    "answers": [{"text": answer, "answer_start": passage.index(answer)} for answer in answers],
                }
            ],
        }
        for i, (question, passage, answers) in enumerate(asked)
    ]  # fmt: skip
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "a", "paragraphs": paragraphs}]}))
    return str(path)


def write_csv(path, rows, header=("text", "label")):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path
