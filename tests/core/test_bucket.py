"""Files in a bucket that speaks S3's protocol, on this machine."""

import re

import pytest

from bert_jax.core.bucket import Bucket
from bert_jax.core.errors import BertJaxError
from tests.support.object_store import WRITTEN, object_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


@pytest.fixture(autouse=True)
def empty(store):
    store.objects.clear()


@pytest.mark.parametrize(("address", "expected"), [
    ("in", ["a/3 x.csv", "a/é.csv", *(f"{n}.txt" for n in range(7))]),
    ("in/", ["a/3 x.csv", "a/é.csv", *(f"{n}.txt" for n in range(7))]),
    ("in/3.txt", ["3.txt"]),
    ("in/*.txt", [f"{n}.txt" for n in range(7)]),
    ("in/**/*3*", ["3.txt", "a/3 x.csv"]),
    ("i*/a/*", ["in/a/3 x.csv", "in/a/é.csv"]),
    ("nothing", []),
])  # fmt: skip
def test_files_are_listed(address, expected, store):
    store.objects |= {f"in/{n}.txt": b"x" * n for n in range(7)} | {"in/a/3 x.csv": b"", "in/a/é.csv": b"one"}
    files = Bucket(store.address(address)).list_files()
    assert sorted(files) == sorted(expected)
    for file in files.values():
        assert file.bytes == len(store.objects[str(file.location).removeprefix("s3://bucket/")])
        assert file.changed_ns == WRITTEN * 10**9


def test_what_is_uploaded_is_downloaded(store, tmp_path):
    for content in (b"", b"small", b"0123456789" * 3_000_000):
        (tmp_path / "given").write_bytes(content)
        location = Bucket(store.address("folder/a b")) / "é.bin"
        location.upload(tmp_path / "given")
        assert store.objects == {"folder/a b/é.bin": content}
        location.download(tmp_path / "copies/copy")
        assert (tmp_path / "copies/copy").read_bytes() == content
    Bucket(store.address("folder")).remove_folder()
    assert not store.objects


def test_what_cannot_be_done_is_told_in_a_line(store, tmp_path, monkeypatch):
    (tmp_path / "given").write_text("text")
    monkeypatch.setattr(store, "refused", re.compile("closed"))
    monkeypatch.setattr(store, "refuses_parts", True)
    for name, message in (("closed/a", "ACCESS_DENIED"), ("open", "ACCESS_DENIED during UploadPart")):
        with pytest.raises(BertJaxError, match=rf"^s3://bucket/{name}: .*{message}.*; check the address"):
            Bucket(store.address(name)).upload(tmp_path / "given")
    assert not store.objects
    with pytest.raises(BertJaxError, match=r"^s3://bucket/none: .*does not exist"):
        Bucket(store.address("none")).download(tmp_path / "copy")


@pytest.mark.parametrize(("address", "message"), [
    ("gs://a bucket/x", "gs://a bucket/x: Cannot parse"),
    ("nowhere://b/x", "nowhere://b/x: Unrecognized filesystem type"),
    ("s3://", "s3://: Missing bucket name"),
    ("gs://b?key=secret", "gs://b: Unexpected query parameter"),
    ("s3://name:secret@b/x", "keys do not belong in an address"),
])  # fmt: skip
def test_an_address_that_is_none_is_refused(address, message):
    with pytest.raises(BertJaxError) as error:
        Bucket(address).list_files()
    assert str(error.value).startswith(message) and "secret" not in str(error.value)
