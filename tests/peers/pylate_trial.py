"""Token vectors in PyLate: `python -m tests.peers.pylate_trial DIR`, in an environment of it alone.

DIR has a plain encoder in `base`, a directory of Stanford's in `stanford`, and texts in `texts.json`. Each model that
PyLate makes of the encoder is saved in DIR, and `theirs.json` has the vectors and scores of each.
"""

import json
import sys
from pathlib import Path

from pylate import models, scores

SETTINGS = {
    "usual": {},
    "attended": {"attend_to_expansion_tokens": True, "skiplist_words": []},
    "without expansion": {"do_query_expansion": False, "query_prefix": "the ", "document_prefix": ""},
    "few words": {"skiplist_words": [".", "the"], "query_length": 6, "document_length": 9},
}


def compute(model, texts: list[str]) -> dict:
    queries = model.encode(texts, is_query=True)
    documents = model.encode(texts, is_query=False)
    with_tokens = [document for document in documents if len(document)]
    return {
        "queries": [vectors.tolist() for vectors in queries],
        "documents": [vectors.tolist() for vectors in documents],
        "scores": [
            [float(scores.colbert_scores(query[None], document[None])) for document in with_tokens]
            for query in queries
        ],
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    texts, results = json.loads((folder / "texts.json").read_text()), {}
    for name, settings in SETTINGS.items():
        lengths = {"query_length": 9, "document_length": 11}
        model = models.ColBERT(str(folder / "base"), embedding_size=6, device="cpu", **lengths | settings)
        model.save(str(folder / name))
        results[name] = compute(model, texts)
    results["stanford"] = compute(models.ColBERT(str(folder / "stanford"), device="cpu"), texts)
    (folder / "theirs.json").write_text(json.dumps(results))
