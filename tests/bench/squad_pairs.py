"""SQuAD's questions and their paragraphs as pairs to train on, and those of other articles to judge by.

    python -m tests.bench.squad_pairs dev-v1.1.json train.jsonl test.jsonl [PAIRS] [FOLDER]

The last ten articles are kept apart. PAIRS draws so many of the others; FOLDER gets the test in BEIR's layout.
"""

import json
import random
import sys
from pathlib import Path

KEPT = 10  # articles to judge by


def pairs_of(article: dict) -> list[dict]:
    return [
        {
            "question": question["question"].strip(),
            "paragraph": paragraph["context"],
            "title": article["title"],
        }
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def write(path, rows) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_folder(folder: Path, rows: list[dict]) -> None:
    """Every paragraph is a document, and every question has one that is relevant."""
    folder.mkdir(exist_ok=True)
    documents = {text: f"d{n}" for n, text in enumerate(dict.fromkeys(row["paragraph"] for row in rows))}
    write(folder / "corpus.jsonl", ({"_id": name, "text": text} for text, name in documents.items()))
    write(folder / "queries.jsonl", ({"_id": f"q{n}", "text": row["question"]} for n, row in enumerate(rows)))
    judged = [f"q{n}\t{documents[row['paragraph']]}\t1\n" for n, row in enumerate(rows)]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged), encoding="utf-8")


def main(source: str, train: str, test: str, count: str = "0", folder: str = "") -> None:
    articles = sorted(json.loads(Path(source).read_text(encoding="utf-8"))["data"], key=lambda a: a["title"])
    random.Random(0).shuffle(articles)
    parts = articles[:-KEPT], articles[-KEPT:]
    learnt, judged = ([pair for article in part for pair in pairs_of(article)] for part in parts)
    if int(count):
        learnt = random.Random(1).sample(learnt, int(count))
    write(train, learnt)
    write(test, judged)
    if folder:
        write_folder(Path(folder), judged)
    print(f"{len(learnt):,} pairs of {len(parts[0])} articles, {len(judged):,} of {len(parts[1])} others")


if __name__ == "__main__":
    main(*sys.argv[1:])
