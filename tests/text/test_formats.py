"""Documents as they lie about: pages, Wikipedia's dumps, WikiExtractor's files, folders, and data sets of the hub."""

import bz2
import os
import time
from pathlib import Path

import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.search.documents import DocumentSource as Indexed
from bert_jax.text import html
from bert_jax.text.markdown import extract_markdown
from bert_jax.text.text_source import TextSource
from bert_jax.text.wikitext import text_of

DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo><namespaces>
    <namespace key="0" case="first-letter" />
    <namespace key="6" case="first-letter">Datei</namespace>
  </namespaces></siteinfo>
  <page><title>Katze</title><ns>0</ns><id>7</id><revision><id>70</id><model>wikitext</model>
    <text xml:space="preserve">{{Infobox}}'''Katzen''' &amp;amp; [[Hund|Hunde]].&lt;ref&gt;x&lt;/ref&gt;
[[Datei:K.jpg|mini|Eine [[Katze]]]]
== Literatur ==
</text></revision></page>
  <page><title>Kater</title><ns>0</ns><id>8</id><redirect title="Katze" />
    <revision><text>#REDIRECT</text></revision></page>
  <page><title>Diskussion:Katze</title><ns>1</ns><id>9</id><revision><text>Nein!</text></revision></page>
  <page><title>Hund</title><ns>0</ns><id>10</id><revision><text>Er bellt.</text></revision></page>
</mediawiki>
"""
EXTRACTED = """<doc id="12" url="https://x.org/wiki?curid=12" title="Q &amp; A">
Q & A

One.

Two &lt; three.
</doc>
<doc id="13" url="https://x.org/wiki?curid=13" title="B">
B

Four.
</doc>
"""
PAGE = "<html><head><title>T</title><style>p {}</style></head><body><p>Seen<script>no</script>.</body></html>"
FILES = {
    "dump.xml.bz2": bz2.compress(DUMP.encode()),
    "wiki/AA/wiki_00": EXTRACTED.encode(),
    "wiki/AB/wiki_00.bz2": bz2.compress(EXTRACTED.replace('id="1', 'id="2').replace("One", "Five").encode()),
    "page.html": PAGE.encode(),
    "notes.md": b"---\nlang: en\n---\n# Notes\n\nThey are\n**here**.\n",
    "picture.png": b"\x89PNG\0\0",
    "plain.txt": b"Plain.",
}  # fmt: skip
TEXTS = {
    "dump.xml.bz2": ["Katzen & Hunde.", "Er bellt."],
    "notes.md": ["They are here."],
    "page.html": ["Seen."],
    "plain.txt": ["Plain."],
    "wiki/AA/wiki_00": ["One.\nTwo < three.", "Four."],
    "wiki/AB/wiki_00.bz2": ["Five.\nTwo < three.", "Four."],
}


@pytest.fixture(params=[1, -1], ids=["forth", "back"])
def folder(request, tmp_path, monkeypatch) -> Path:
    """Of files that the system lists in either order."""
    for name, content in FILES.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_bytes(content)
    for name in ("listdir", "scandir"):
        listed = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *where, listed=listed: Listing(listed(*where), request.param))
    return tmp_path / "docs"


class Listing(list):
    def __init__(self, entries, step: int):
        super().__init__(sorted(entries, key=lambda entry: getattr(entry, "name", entry))[::step])
        self.entries = iter(self)

    def __next__(self):
        return next(self.entries)

    def __enter__(self):
        return iter(self)

    def __exit__(self, *_):
        pass


def test_a_folder_is_read_alike_for_training_and_for_an_index(folder):
    source, index = TextSource([folder]), Indexed([str(folder)])
    assert list(source.documents()) == [text for name in sorted(TEXTS) for text in TEXTS[name]]
    assert source.binary_files == 1 and source.read_bytes == source.total_bytes
    found = {one.id: (one.title, one.text) for one in index.documents()}
    assert [text for _, text in found.values()] == list(source.documents())
    assert {id: title for id, (title, _) in found.items()} == {
        "7": "Katze", "10": "Hund", "12": "Q & A", "13": "B", "22": "Q & A", "23": "B",
        "notes.md": "Notes", "page.html": "T", "plain.txt": "",
    }  # fmt: skip
    assert list(index.notes()) == ["files of other kinds are left out: .png (1)"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.xml", DUMP[:-20].encode(), "x.xml line 14 is not XML"),
        ("x.xml", b"<rss>\n</rss>", "x.xml line 1: the root element is <rss>; the only .xml files"),
        ("x.xml.bz2", FILES["dump.xml.bz2"][:-9], "x.xml.bz2 cannot be read"),
        ("wiki_00", EXTRACTED[:-8].encode(), "wiki_00 line 8 opens a <doc> that is never closed"),
        ("picture.png", FILES["picture.png"], "picture.png line 1 has NUL bytes"),
    ],
)
def test_what_cannot_be_read_is_one_line(name, content, message, tmp_path, capsys):
    (tmp_path / name).write_bytes(content)
    command = ["vocab", "--input", str(tmp_path / name), "--output", str(tmp_path / "vocab")]
    assert main(command) == 1
    output = capsys.readouterr()
    assert output.err.startswith("bert-jax vocab: ") and message in output.err and output.err.count("\n") == 1


def test_wiki_markup():
    markup = """{{a|{{b}}\n{| x\n| y\n|}\n}}''The'' {{c}}[[cat]]s ({{d}}, [[La|L]]) [https://x.org sat]
<!-- [[ -->down<ref name="x"
/>.<ref>{{e}}</ref><br />So &lt;there&gt;.
{| class="t"
| a || [[b]]
|}
* [[:File:a.png]], &nbsp;{{f}} ;
[[Image:a.png|thumb|A [[b]] of [[c|d]]]]
== Empty ==
== Full ==
z
=== Also empty ===
== Last ==
x }} ]] {{ y
"""
    assert text_of(markup).split("\n") == [
        "The cats (L) sat", "down.", "So <there>.", "File:a.png,;", "Full", "z", "Last", "x }} {{ y",
    ]  # fmt: skip


def test_markdown():
    source = """Title
=====
Wrapped [li
nk](a.html "t") and *emph
asis*, `**code**`.
> Quoted
* item, 2 * 3 * 4
  goes on
1. [x][1] ![picture](p.png)

## Sub ##
```py
a = b[0](c)  # **kept**
```
| a | **b** |
|---|:-:|
| c | d |
<b>bold</b> &amp; \\*stars\\* <!-- gone -->
---

[1]: https://x.org
"""
    title, text = extract_markdown(source)
    assert title == "Title"
    assert text.split("\n") == [
        "Wrapped li nk and emph asis, **code**. Quoted", "item, 2 * 3 * 4 goes on", "x picture", "Sub",
        "a = b[0](c)  # **kept**", "a b", "c d", "bold & *stars*",
    ]  # fmt: skip


def test_only_definitions_of_links_are_left_out_of_markdown():
    definitions = ("[1]: https://x.org", "[a b]: <x y> 'title'", '  [c]: x.md "a title"', "[d]: x (title)")
    prose = ("[Note]: this sentence is prose.", '[e]: x "title" and more')
    page = (
        "\n\n".join(["A cat.[^1]", *definitions, *prose]) + "\n\n[^1]: A sentence,\ngoes on.\n[^b]: Another."
    )
    lines = ["A cat.[^1]", *prose, "A sentence, goes on.", "Another."]
    assert extract_markdown(page) == ("", "\n".join(lines))


@pytest.mark.slow
def test_hostile_pages_take_a_time_in_proportion_to_their_length():
    n = 50_000
    pages = (
        "[[" * n + "]]" * n, "<ref>" * n, "{{" * n + "|}\n" * 99, "{|\n" * n + "}}" * 99, "''" * n, "<a" * n,
        "&lt;" * n, "a\n" * n, "[a](" * n, "a".join("`" * k for k in range(500)), "*a " * n,
        "# " + " " * n + "b", "- " * n,
    )  # fmt: skip

    def seconds(read, page):
        # Of this thread alone: those that other tests left behind in this process do not count.
        begun = time.thread_time()
        read(page)
        return time.thread_time() - begun

    for page in pages:
        for read in (text_of, extract_markdown):
            # About 0.05 s. A collection of garbage may disturb one try, not three.
            assert any(seconds(read, page) < 1.5 for _ in range(3)), (read.__module__, page[:9])


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_read_from_its_copy(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    home = tmp_path / ".cache/datasets--me--set"
    for revision, text in (("main", "a"), ("refs/convert/parquet", "b")):
        files = home / "snapshots" / (text * 40)
        (files / "sub").mkdir(parents=True)
        (files / "sub/one.jsonl").write_text(f'{{"text": "{text}"}}\n')
        (files / "README.md").write_text("not this")
        (home / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
        (home / "refs" / revision).write_text(text * 40)
    for name, text in (
        ("me/set/sub", "a"), ("me/set/sub/*.jsonl", "a"), ("me/set@main/sub/one.jsonl", "a"),
        ("me/set@~parquet/sub", "b"), ("me/set@refs%2Fconvert%2Fparquet/*/*", "b"),
    ):  # fmt: skip
        assert list(TextSource([f"hf://datasets/{name}"]).documents()) == [text]
    for name, message in (
        ("datasets/me/set", "is not hf://datasets/OWNER/NAME/FILES"),
        ("datasets/me/set/x.txt", "no file at hf://datasets/me/set/x.txt"),
        ("datasets/me/other/x.txt", "cannot be fetched from the Hugging Face hub"),
    ):
        with pytest.raises(BertJaxError, match=message):
            TextSource([f"hf://{name}"])


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("<header>Log in<h1>Cats</h1></header><nav>Home</nav><p>They sat.</p><footer>2024</footer>", "Cats|They sat."),
        ("<article><header><h1>Cats</h1>By Ada</header>They sat.<aside>A note.</aside></article><aside>Ads</aside>",
         "Cats|By Ada|They sat.|A note."),
        ("<article><nav>Contents</nav><p>They sat.</article>", "They sat."),
        ("<nav>Home<p>They sat.", "Home|They sat."),  # it does not end, so where the text begins is not known
        ("<nav>All there is.</nav>", "All there is."),
    ],
)  # fmt: skip
def test_what_stands_around_the_text_of_a_page_is_left_out(page, lines):
    assert html.extract_html(page)[1].split("\n") == lines.split("|")
