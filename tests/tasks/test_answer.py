"""An answer finder learns. Its logits are those of transformers in tests/models/test_reference.py."""

import json
import random

import pytest

from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.example import Example
from bert_jax.inference.load import load
from bert_jax.predictions.kinds.answers import Answers, span_in
from tests.support.finetuning_runs import finetune
from tests.support.made_up_language import WORDS
from tests.support.small_models import write_model
from tests.support.texts import random_texts
from tests.support.tiny_encoder import TOKENIZER


@pytest.mark.ci
def test_an_answer_finder_learns(tmp_path, encoder_path):
    rng = random.Random(7)
    articles = []
    for n, text in enumerate(random_texts(240, (4, 40))):
        words = text.split()
        asked = {"id": str(n), "question": "w10", "answers": []}
        if n % 4:
            at = rng.randrange(len(words))
            words[at:at] = ["w11", "w12"]
            asked["answers"] = [{"answer_start": len(" ".join(words[:at])) + bool(at), "text": "w11 w12"}]
        asked["is_impossible"] = not asked["answers"]
        articles.append({"title": str(n), "paragraphs": [{"context": " ".join(words), "qas": [asked]}]})
    train = tmp_path / "train.json"
    train.write_text(json.dumps({"version": "v2.0", "data": articles}))
    settings = {"data.train": train, "data.overlap": 8, "data.batching": "packed"}
    found = finetune("answer", encoder_path, tmp_path / "run", epochs=10, **settings)
    ours = load(tmp_path / "run/model")
    assert max(line["f1"] for line in found) > 0.9
    assert ours.answer("w10", "w50 w51 w11 w12 w52", allow_no_answer=True).text == "w11 w12"


@pytest.mark.parametrize("allowed", [False, True])
def test_whether_an_answer_may_be_missing_is_kept_with_the_model(allowed, tmp_path):
    kind = Answers(allow_no_answer=allowed)
    write_model(tmp_path / "before", heads=("answer",))
    model = load(tmp_path / "before")
    model.layout.hf_config.update(kind.hf_config_keys)
    model.save(tmp_path / "after")
    assert json.loads((tmp_path / "after/config.json").read_text())["allow_no_answer"] is allowed
    (tmp_path / "before/config.json").write_text(
        json.dumps(json.loads((tmp_path / "before/config.json").read_text()) | {"may_be_missing": allowed})
    )
    assert load(tmp_path / "before").kind == kind, "it was saved with the other key"
    again = load(tmp_path / "after")
    assert again.kind == kind and (again.answer("the ?", "") is None) is allowed


def test_the_answer_is_where_the_file_says_or_at_cls():
    text = " ".join(WORDS[:90])
    start = text.index("w60 ")
    example = Example(("w1", text), ((start, "w60 w61"),), "")
    windows = TOKENIZER.windows([example.text], max_length=40, overlap=10)[0]
    spans = [span_in(example, window) for window in windows]
    assert [span for span in spans if span["starts"]]
    for span, window in zip(spans, windows, strict=True):
        output = TOKENIZER.tokens(window.input_ids[span["starts"] : span["ends"] + 1])
        assert output in (["w60", "w61"], ["[CLS]"])
    # Cut by a window's edge it is in neither half.
    cut = Example(("w1", text), ((text.index("w35 "), "w35 w36 w37"),), "")
    edges = [span_in(cut, window) for window in TOKENIZER.windows([cut.text], max_length=40, overlap=1)[0]]
    assert edges[0] == {"starts": 0, "ends": 0}


def test_too_few_questions_are_named_before_training():
    def hint(count: int) -> str:
        return Answers().label_hint([Example(("w1", "w2"), ((0, "w2"),), "")] * count, AUTODETECT)

    assert hint(500).startswith("500 questions are few") and hint(2_000) == ""
