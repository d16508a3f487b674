"""Groups of texts that belong together: their columns, positives of the same label, what is wrong with a table."""

import random

import numpy as np
import pytest

from bert_jax.command.inspect import show_examples as inspect_run
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.group_columns import GroupColumns, describe_columns, reuse_training_columns
from bert_jax.data.examples.groups import Group, pair_by_label, read_groups, read_text_column
from bert_jax.data.randomness import random_key
from bert_jax.finetuning.embedding_task import score_retrieval
from tests.support.embedding_tasks import EMBED_CONFIG, open_embed_task, random_pairs
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts


def test_the_columns_are_taken_in_their_order(tmp_path):
    rows = [
        {"id": 7, "Question": "a", "right": "b", "wrong": ["c", "d"], "title": "one"},
        {"id": 8, "Question": "e", "right": "f", "wrong": ["g", "h"], "title": "two"},
    ]
    groups = read_groups(write_jsonl(tmp_path / "groups.jsonl", rows), GroupColumns())
    assert [group.texts for group in groups] == [("a", "b", "c", "d"), ("e", "f", "g", "h")]
    assert [group.document for group in groups] == ["one", "two"]
    named = GroupColumns(texts=("right", "question"))
    assert [g.texts for g in read_groups(str(tmp_path / "groups.jsonl"), named)] == [("b", "a"), ("f", "e")]
    (tmp_path / "scored.csv").write_text("3.5,x,y\n1,z,w\n", encoding="utf-8")
    scored = read_groups(str(tmp_path / "scored.csv"), GroupColumns(texts=("1", "2"), score="0"))
    assert [(g.texts, g.scores) for g in scored] == [(("x", "y"), (3.5,)), (("z", "w"), (1.0,))]


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ({"negatives": []}, "row 2.*3.*row 1"),
        ({}, 'row 1.*"negatives"'),
        ({"q": ["a", "A"]}, 'row 1: column "q" holds a list, and the anchor is one text'),
    ],
)
def test_a_first_row_without_negatives_does_not_drop_those_of_others(first, message, tmp_path):
    rows = [{"q": "a", "p": "b"} | first, {"q": "c", "p": "d", "negatives": ["e"]}]
    with pytest.raises(BertJaxError, match=message):
        read_groups(write_jsonl(tmp_path / "train.jsonl", rows), GroupColumns())


def test_columns_of_numbers_are_left_out_and_the_others_are_said(tmp_path):
    rows = [f"{n},{n},why w{n},because w{n}\n" for n in range(30)]
    path = tmp_path / "tickets.csv"
    path.write_text("".join(["id,Ticket #,Asked (raw),Answer\n", *rows]))
    assert read_groups(str(path), GroupColumns())[1].texts == ("why w1", "because w1")
    assert describe_columns(str(path), GroupColumns(), "--text") == (
        f'{path}: anchor "Asked (raw)", positive "Answer"; left out because they hold only numbers: "Ticket #"; '
        'not read: "id"; name others with --text'
    )
    named = GroupColumns(texts=("Ticket #", "Answer"))
    assert read_groups(str(path), named)[1].texts == ("1", "because w1")
    assert describe_columns(str(path), named, "") == (
        f'{path}: anchor "Ticket #", positive "Answer"; not read: "id", "Asked (raw)"'
    )


def test_a_column_of_few_values_is_no_text_unless_it_is_named(tmp_path):
    rows = [f"{['bob', 'eve'][n % 2]},why w{n},because w{n}\n" for n in range(30)]
    path = tmp_path / "tickets.csv"
    path.write_text("".join(["agent,asked,answer\n", *rows]))
    for reader in (read_groups, read_text_column):
        with pytest.raises(BertJaxError, match='column "agent" repeats 2 values in 30 rows'):
            reader(str(path), GroupColumns())
    assert read_text_column(str(path), GroupColumns(), "answer")[1] == "because w1"
    named = GroupColumns(texts=("agent", "answer"))
    assert read_groups(str(path), named)[1].texts == ("eve", "because w1")
    path.write_text(path.read_text().replace("agent,asked", "query,document"))
    assert read_groups(str(path), GroupColumns())[1].texts == ("eve", "because w1"), "queries repeat"


@pytest.mark.parametrize(
    ("columns", "texts", "group"),
    [
        ("document query", "query document", ""),
        ("passage QUERY", "QUERY passage", ""),
        ("negative positive anchor", "anchor positive negative", ""),
        ("hard_negative_1 why because", "why because hard_negative_1", ""),
        ("context question answer", "question context answer", ""),
        ("note text query", "query text note", ""),
        ("text reply", "text reply", ""),
        ("query document score", "query document", ""),
        ("title query document", "query document", "title"),
        ("document", "document", ""),
        # A row still has its texts without the column, and nothing says that it is one.
        ("document why because", "why because", "document"),
        ("query positive negative document", "query positive negative", "document"),
        ("text label document", "text", "document"),
    ],
)
def test_texts_have_their_usual_places_and_only_another_column_is_a_group(columns, texts, group):
    row = {name: 0.5 if name == "score" else f"some {name}" for name in columns.split()}
    resolved = GroupColumns().resolve([("t.jsonl row 1", row)])
    assert (" ".join(resolved.texts), resolved.group) == (texts, group)


def test_a_named_text_is_no_group_and_a_named_group_no_text():
    row = dict.fromkeys(("query", "document", "title"), "some text")
    resolved = GroupColumns(texts=("document", "query")).resolve([("t.jsonl row 1", row)])
    assert resolved.texts == ("document", "query") and resolved.group == "title"
    resolved = GroupColumns(group="document").resolve([("t.jsonl row 1", row)])
    assert resolved.texts == ("query", "title") and resolved.group == "document"


def test_texts_that_are_all_their_own_positives_are_refused_unless_there_are_no_others(tmp_path):
    rows = [{"asked": f"a{n}", "again": f"a{n}"} for n in range(3)]
    path = write_jsonl(tmp_path / "equal.jsonl", rows)
    message = "equal.jsonl: the texts of a row are equal"
    with pytest.raises(BertJaxError, match=message):
        read_groups(path, GroupColumns())
    assert read_groups(path, GroupColumns(texts=("asked",)))[1].texts == ("a1", "a1")
    some_differ = [*rows, {"asked": "b", "again": "c"}]
    assert len(read_groups(write_jsonl(tmp_path / "some.jsonl", some_differ), GroupColumns())) == 4


def test_a_corpus_is_read_from_the_named_column_or_a_usual_one(tmp_path):
    def read(columns: str, preferred: str = "") -> str:
        rows = [{name: f"{name} {n}" for name in columns.split()} for n in range(2)]
        return read_text_column(write_jsonl(tmp_path / "corpus.jsonl", rows), GroupColumns(), preferred)[0]

    assert read("title Document url", "document") == "Document 0"
    assert read("document text", "document") == "document 0"
    assert read("title text") == read("document text") == read("note text", "answer") == "text 0"
    assert read("title document") == read("title document url") == "document 0"
    assert read("title abstract") == read("abstract note") == "abstract 0" and read("title") == "title 0"
    assert read("answer question") == "answer 0"


def test_columns_that_a_run_named_are_remembered_where_a_table_has_them(tmp_path):
    path = write_jsonl(
        tmp_path / "pairs.jsonl", [{"why": f"a{n}", "asked": f"b{n}", "much": n} for n in range(3)]
    )
    before = GroupColumns(texts=("asked", "why"), score="much").pair_columns

    def texts_by(columns: GroupColumns) -> tuple[tuple[str, ...], tuple[float, ...]]:
        group = read_groups(path, reuse_training_columns(path, columns, before))[1]
        return group.texts, group.scores

    assert texts_by(GroupColumns()) == (("b1", "a1"), (1.0,))
    assert texts_by(GroupColumns(texts=("why",))) == (("a1", "a1"), ())
    before = GroupColumns(texts=("asked", "gone")).pair_columns
    assert texts_by(GroupColumns()) == (("a1", "b1"), ())


def test_texts_that_would_find_themselves_are_not_asked():
    same, other = Group(("a", "a"), None, "0"), Group(("b", "c"), None, "1")
    vectors = np.eye(4, dtype=np.float32).reshape(2, 2, 4)
    vectors[1, 1] = vectors[1, 0]
    assert score_retrieval(vectors, [same, other]).scores == score_retrieval(vectors[1:], [other]).scores
    assert score_retrieval(vectors, [same, other]).scores["mrr@10"] == 1


@pytest.mark.slow
def test_single_texts_are_not_measured(encoder_path, tmp_path, capsys):
    rows = [{"text": text} for text in random_texts(40, (3, 6), 0)]
    _, data, config = open_embed_task(encoder_path, write_jsonl(tmp_path / "single.jsonl", rows))
    assert not data.validation and config.checkpoints.best_metric == ""
    assert "there is no validation during training" in capsys.readouterr().err


def test_a_text_of_the_same_label_is_a_positive_and_a_text_alone_is_its_own(tmp_path):
    rows = [{"text": f"t{n}", "label": "ab"[n % 2]} for n in range(8)] + [{"text": "t8", "label": "c"}]
    groups = read_groups(write_jsonl(tmp_path / "labelled.jsonl", rows), GroupColumns())
    assert len(groups) == 8, "c has one text"
    for group in groups:
        numbers = [int(text[1:]) for text in group.texts]
        assert numbers[0] != numbers[1] and numbers[0] % 2 == numbers[1] % 2
        assert group.shared_label == "ab"[numbers[0] % 2]
    plain = read_groups(write_jsonl(tmp_path / "plain.jsonl", [{"text": "a"}, {"text": "b"}]), GroupColumns())
    assert [group.texts for group in plain] == [("a", "a"), ("b", "b")]


def test_positives_are_drawn_as_from_the_list_of_all_other_texts():
    rng = random.Random(0)
    for _ in range(50):
        rows = [
            Group((f"t{rng.randrange(6)}",), None, str(n), shared_label=rng.choice("abc")) for n in range(20)
        ]
        expected = []
        for n, row in enumerate(rows):
            others = [
                other for other in rows if other.shared_label == row.shared_label and other.text != row.text
            ]
            if others:
                expected.append(row.texts + others[int(random_key("positive", n)) % len(others)].texts)
        assert [group.text for group in pair_by_label("a.csv", rows)] == expected


BAD = {
    "no such column": ([{"q": "a", "p": "b"}], ["data.columns.texts=q,passage"], 'row 1 has no column "passage"'),
    "an empty anchor": (
        [{"q": "a", "p": "b"}, {"q": " ", "p": "c"}], [], r'row 2: column "q" is empty; .* bad rows: 1 of 2',
    ),
    "a positive among its negatives": (
        [{"q": "a", "p": "b", "n": "b"}], [], "row 1: the positive is also one of the negatives",
    ),
    "more negatives than another": (
        [{"q": "a", "p": "b", "n": ["c"]}, {"q": "d", "p": "e", "n": ["f", "g"]}], [],
        "row 2 has 4 texts and .* row 1 has 3; give every row the same number",
    ),
    "a score that is no number": ([{"a": "a", "b": "b", "score": "high"}], [], "row 1.*'high', not a number"),
    "a score out of range": (
        [{"a": "a", "b": f"b{n}", "score": n} for n in range(4)], ["loss.name=cosine", "data.validation_ratio=0.5"],
        r"the score \d is not between -1 and 1, .*set --config.loss.name=cosent",
    ),
    "one label": (
        [{"text": "a", "label": "x"}, {"text": "b", "label": "x"}], [], 'has only the label "x"; give texts with',
    ),
    "labels of one text": (
        [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], [], "no two different texts have the same label",
    ),
    "a loss of other data": (
        [{"a": "a", "b": f"b{n}"} for n in range(4)], ["loss.name=cosent", "data.validation_ratio=0.5"],
        "loss.name=cosent does not accept rows of 2 texts and 0 scores, .*; losses that do: multiple_negatives, "
        "guided, teacher_vectors$",
    ),
    "too large a size": (
        [{"a": "a", "b": f"b{n}"} for n in range(4)], ["loss.sizes=(64,)", "data.validation_ratio=0.5"],
        "loss.sizes holds 64, but the vectors have 32 dimensions; set --config.loss.sizes from 1 to 32",
    ),
    "a margin of a loss that has none": (
        [{"a": "a", "b": f"b{n}"} for n in range(4)], ["loss.margin=0.3", "data.validation_ratio=0.5"],
        "loss.name=multiple_negatives does not use loss.margin; losses that do: guided, triplet, contrastive",
    ),
    "a loss without its teacher": (
        [{"a": "a", "b": "b"}], ["loss.name=guided"], "needs a teacher; name the directory of an embedder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_learnt_from_is_said_in_a_line(case, encoder_path, tmp_path):
    rows, overrides, message = BAD[case]
    with pytest.raises(BertJaxError, match=message) as caught:
        open_embed_task(encoder_path, write_jsonl(tmp_path / "train.jsonl", rows), *overrides)
    assert "\n" not in str(caught.value)


def test_duplicates_are_counted_and_the_groups_of_a_step_are_shown(encoder_path, tmp_path, capsys):
    rows = [row | {"score": n / 10} for n, row in enumerate(random_pairs(10))]
    train = write_jsonl(tmp_path / "train.jsonl", [*rows, *rows[:3]])
    validation = write_jsonl(tmp_path / "validation.jsonl", rows[:4])
    values = {"init": encoder_path, "data.train": train, "data.validation": validation}
    values |= {"data.batch_size": 4, "data.max_length": 8}
    shown = inspect_run(EMBED_CONFIG, [f"{name}={value}" for name, value in values.items()], 0, 9)
    printed = capsys.readouterr().err
    assert "3 of 13 training rows are duplicates of others" in printed
    assert shown.count("anchor: [CLS] ") == shown.count("positive: [CLS] ") == shown.count("score: 0") == 4
