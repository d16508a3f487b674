"""The parts of a corpus, made in any order: the bytes of one process, whatever is odd in the files."""

import gzip
import json
from functools import partial

import pytest

from bert_jax.cluster import prepare_parts
from bert_jax.cluster.worker import ClusterOptions
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.text.text_source import TextSource
from tests.support.indexes import file_contents
from tests.support.made_up_language import join_documents, random_documents, save_tokenizer
from tests.support.object_store import object_store

HERE = ClusterOptions("local")


def complete_here(options, work, parts, before) -> list:
    """What the workers do, in another order, in this process."""
    write = work.open()
    for part in reversed(parts):
        with part.local_copy() as local:
            work.folder.record(part, write(local), local)
    complete = work.folder.list_complete(parts)
    return [complete[part.name] for part in parts]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepare_parts, "complete_shards", complete_here)
    documents = random_documents(60, seed=3)
    folder = tmp_path / "texts"
    folder.mkdir()
    for part in range(6):
        (folder / f"{part}.txt").write_text(join_documents(documents[10 * part : 10 * part + 15]))
    (folder / "2.txt").write_bytes(b"w1 \xff w2\n\n" + (folder / "2.txt").read_bytes())
    (folder / "empty.txt").write_text("\n\n")
    (folder / "picture.txt").write_bytes(b"\x89\0\0PNG")
    save_tokenizer(tmp_path / "vocabulary")
    return folder


def prepare(output: str, *given: str, maker=None) -> dict:
    opened = prepare_parts.open_source if maker else TextSource
    source = opened(given or ["texts"], "sentences", "text", False)
    return prepare_corpus(source, "vocabulary", output, validation_ratio=0.1, processes=1, chunk_maker=maker)


def test_parts_give_the_bytes_of_one_process(texts, tmp_path):
    expected = prepare("alone")
    assert prepare("together", maker=partial(prepare_parts.make_parts, HERE)) == expected
    source, counts = expected["source"], expected["counts"]
    assert (source["empty_files"], source["binary_files"], source["broken_lines"]) == (1, 1, 1)
    assert counts["duplicate_documents"] == 25, "of files that are in different parts"
    assert file_contents(tmp_path / "together") == file_contents(tmp_path / "alone")


@pytest.mark.slow
def test_files_in_a_bucket_give_the_bytes_of_those_here(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_parts, "PART_BYTES", 5000)
    expected = prepare("alone")
    with object_store() as store:
        store.objects |= {f"in/{path.name}": path.read_bytes() for path in texts.iterdir()}
        found = prepare("together", store.address("in"), maker=partial(prepare_parts.make_parts, HERE))
        with pytest.raises(BertJaxError, match="picture.txt line 1 has NUL bytes"):
            prepare("named", store.address("in/picture.txt"), maker=partial(prepare_parts.make_parts, HERE))
        with pytest.raises(BertJaxError, match="no text in s3://bucket/in/empty.txt; every input"):
            prepare("empty", store.address("in/empty.txt"), maker=partial(prepare_parts.make_parts, HERE))
        prepare("file", store.address("in/0.txt"), maker=partial(prepare_parts.make_parts, HERE))
        with pytest.raises(BertJaxError, match="texts is in no bucket, and other inputs are"):
            prepare("both", "texts", store.address("in"), maker=partial(prepare_parts.make_parts, HERE))
    assert found == expected | {"source": expected["source"] | {"inputs": found["source"]["inputs"]}}
    assert "?" not in found["source"]["inputs"][0]
    ours, theirs = (file_contents(tmp_path / name) for name in ("together", "alone"))
    assert len(ours) > 3 and {n: ours[n] for n in ours if n != "manifest.json"} == {
        n: theirs[n] for n in theirs if n != "manifest.json"
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all.txt", "all.jsonl", "all.txt.gz"])
def test_parts_of_one_file_give_the_bytes_of_one_process(name, texts, tmp_path, monkeypatch):
    content = b"\n\n".join(path.read_bytes() for path in sorted(texts.glob("[0-9].txt")))
    if name == "all.jsonl":
        rows = content.decode("utf-8", "replace").split("\n\n")
        content = "".join(json.dumps({"text": text}) + "\n" for text in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    expected = prepare("alone", name)
    assert expected["counts"]["duplicate_documents"] == 25
    monkeypatch.setattr(prepare_parts, "PART_ROWS", 20)
    parts = []
    whole = prepare_parts.complete_shards
    monkeypatch.setattr(
        prepare_parts, "complete_shards", lambda *given: parts.extend(given[2]) or whole(*given)
    )
    assert prepare("together", name, maker=partial(prepare_parts.make_parts, HERE)) == expected
    assert len(parts) > 3
    assert file_contents(tmp_path / "together") == file_contents(tmp_path / "alone")


def test_files_of_one_document_or_of_articles_are_not_cut(texts, tmp_path):
    (tmp_path / "articles.txt").write_text('<doc id="1" url="" title="A">\nA\n\nw1 w2\n\nw3\n</doc>\n')
    for given, layout, is_cut in (
        ("articles.txt", "blank", False),
        ("texts/0.txt", "file", False),
        ("texts/0.txt", "sentences", True),
    ):
        recipe = prepare_parts.ChunkSettings("vocabulary", "", False, layout, "en")
        work = prepare_parts.plan_parts(TextSource([given], layout), recipe, tmp_path / f"{layout}-{is_cut}")
        assert [bool(part.original) for part in work.list_parts()] == [is_cut]
    assert work.can_cut("rows.jsonl") and not work.can_cut("gs://bucket/rows.jsonl")


def test_parts_of_other_files_are_refused(texts, monkeypatch):
    def fail(*_):
        raise BertJaxError("killed")

    monkeypatch.setattr(prepare_parts, "complete_shards", lambda *given: (complete_here(*given), fail()))
    maker = partial(prepare_parts.make_parts, HERE)
    with pytest.raises(BertJaxError, match="killed"):
        prepare("together", maker=maker)
    (texts / "more.txt").write_text("w1 w2\n")
    with pytest.raises(
        BertJaxError, match="holds chunks made with other settings: files was 8 and is 9; name a new"
    ):
        prepare("together", maker=maker)
