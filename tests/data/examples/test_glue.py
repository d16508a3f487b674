"""GLUE's files and those of TensorFlow Datasets."""

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns, source_labels
from bert_jax.data.examples.example import label_names
from bert_jax.data.examples.questions import read_questions
from bert_jax.data.examples.tagged_words import read_tags
from bert_jax.text.text_source import TextSource
from tests.support.labelled_files import read_texts, texts_and_labels, write_source


def test_glue_files(tmp_path):
    cola = write_source(tmp_path, "CoLA/train.tsv", 'gj04\t1\t\tThey "sang.\ngj04\t0\t*\tSang they.\n')
    assert texts_and_labels(read_texts(cola)) == [
        ('They "sang.', "acceptable"),
        ("Sang they.", "unacceptable"),
    ]
    assert source_labels(cola) == ("unacceptable", "acceptable")
    test = write_source(tmp_path, "CoLA/test.tsv", "index\tsentence\n0\tThey sing.\n")
    assert texts_and_labels(read_texts(test, need_label=False)) == [("They sing.", None)]
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    mrpc = write_source(tmp_path, "MRPC/dev.tsv", header + "1\t5\t6\tA dog.\tOne dog.\n")
    assert texts_and_labels(read_texts(mrpc)) == [(("A dog.", "One dog."), "equivalent")]
    qqp = write_source(tmp_path, "QQP/dev.tsv", "id\tquestion1\tquestion2\tis_duplicate\n5\tWhy?\t\t0\n")
    assert texts_and_labels(read_texts(qqp)) == [(("Why?", ""), "not_duplicate")]
    header = "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    mnli = write_source(tmp_path, "MNLI/dev_matched.tsv", header + "0\ta\tb\tneutral\tentailment\n")
    assert texts_and_labels(read_texts(mnli)) == [(("a", "b"), "entailment")]
    stsb = write_source(tmp_path, "STS-B/dev.tsv", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.800\n")
    assert texts_and_labels(read_texts(stsb, kind="number")) == [(("a", "b"), 3.8)]
    with pytest.raises(BertJaxError, match='"number".*"classes"'):
        read_texts(stsb)
    with pytest.raises(BertJaxError, match='did you mean "mrpc"'):
        read_texts("tfds:glue/mprc:train")


@pytest.mark.slow
def test_tensorflow_datasets(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    from bert_jax.text.host_tensorflow import tf  # noqa: F401

    rows = [
        {"tokens": ["Zoë", "sleeps"], "ner": ["I-PER", "O"], "text": "Zoë sleeps", "label": "zzz", "score": 1.5},
        {"tokens": ["Yes"], "ner": ["O"], "text": "Yes", "label": -1, "score": -0.5},
    ]  # fmt: skip
    answers = [{"text": ["sleeps"], "answer_start": [4]}, {"text": [], "answer_start": []}]

    class MadeUpLabels(tfds.core.GeneratorBasedBuilder):
        # A module of a package would need importlib_resources, which tfds does not install.
        __module__ = "made_up"
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self):
            names = tfds.features.ClassLabel
            features = {
                "tokens": tfds.features.Sequence(tfds.features.Text()),
                "ner": tfds.features.Sequence(names(names=["O", "I-PER"])),
                "text": tfds.features.Text(),
                "label": names(names=["zzz", "awake"]),
                "score": tfds.features.Scalar(np.float32),
                "question": tfds.features.Text(),
                "answers": tfds.features.Sequence(
                    {"text": tfds.features.Text(), "answer_start": tfds.features.Scalar(np.int32)}
                ),
            }
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, (row, found) in enumerate(zip(rows, answers, strict=True)):
                yield i, {**row, "question": "Who?", "answers": found}

    MadeUpLabels(data_dir=tmp_path / "tfds").download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path / "tfds"))
    spec = "tfds:made_up_labels:train"
    found = read_texts(spec, ExampleColumns("text"), need_label=False)
    assert sorted((e.text, e.label or "") for e in found) == [("Yes", ""), ("Zoë sleeps", "zzz")]
    assert source_labels(spec) == ("zzz", "awake") == label_names(found, source_labels(spec))
    assert sorted(e.label for e in read_texts(spec, ExampleColumns("text", label="score"), "number")) == [
        -0.5,
        1.5,
    ]
    assert sorted(texts_and_labels(read_tags(spec))) == [
        (("Yes",), ("O",)),
        (("Zoë", "sleeps"), ("I-PER", "O")),
    ]
    asked = read_questions(spec, ExampleColumns(text_pair="text"))
    assert sorted(e.label for e in asked) == [(), ((4, "sleeps"),)]
    assert sorted(TextSource([spec]).documents()) == ["Yes", "Zoë sleeps"]
    for name, column, complaint in (
        ("tfds:made_up_labels", "text", "names no split"),
        ("tfds:made_up_labels:trian", "text", 'did you mean "train"'),
        ("tfds:no_such_set:train", "text", "cannot be read"),
        (spec, "body", '"body"'),
    ):
        with pytest.raises(BertJaxError, match=complaint):
            list(TextSource([name], column=column).documents())
