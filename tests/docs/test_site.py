"""The site of launch/docs.sh: no link leads nowhere, all that is public has an entry, and the search finds it."""

import json
import re
import resource
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import bert_jax
from bert_jax.command.main import VERBS
from tests.support.processes import process_environment
from tests.support.project import LAUNCH, ROOT

pytestmark = pytest.mark.ci
SECONDS = 20  # for both programs, on one core


def run(*command) -> subprocess.CompletedProcess:
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, env=process_environment(), cwd=ROOT, capture_output=True, text=True)


def build(folder: Path) -> subprocess.CompletedProcess:
    return run("-m", "zensical", "build", "--strict", "--config-file", folder / "mkdocs.yml")


def used_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, float]:
    """The folder with the sources of the site and the site, and the seconds that it took."""
    folder, before = tmp_path_factory.mktemp("site"), used_seconds()
    for ran in (run(LAUNCH / "docs.py", folder), build(folder)):
        assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder, used_seconds() - before


def test_it_is_built_in_seconds(built):
    _, seconds = built
    assert seconds < SECONDS


def test_every_page_for_people_is_in_the_navigation(built):
    folder, _ = built
    shown = set(re.findall(r"[\w./-]+\.md", (folder / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {path.relative_to(folder / "docs").as_posix() for path in (folder / "docs").rglob("*.md")}
    assert shown == pages >= {"README.md", "configs/guides/trust.md", "reference/python/index.md"}


def test_what_assistants_read_stands_at_the_root_and_leads_to_pages(built):
    site = built[0] / "site"
    links = re.findall(r"\]\((.+?)\):", (site / "llms.txt").read_text(encoding="utf-8"))
    assert "configs/guides/trust/" in links
    assert [link for link in links if not (site / link / "index.html").is_file()] == []


@pytest.mark.parametrize("name", bert_jax.__all__)
def test_a_public_name_has_a_page_with_its_signature_and_example(built, name):
    page = (built[0] / f"site/reference/python/{name}/index.html").read_text(encoding="utf-8")
    assert f'id="bert_jax.{name}"' in page and f'id="bert_jax.{name}._' not in page
    if name[0].islower():  # a function
        assert "doc-signature" in page and "&gt;&gt;&gt; " in page


def test_every_verb_and_key_is_listed(built):
    commands = (built[0] / "site/reference/commands/index.html").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if f'id="bert-jax-{verb}"' not in commands] == []
    assert "<code>--batch-invariant</code>" in commands
    keys = (built[0] / "site/reference/keys/index.html").read_text(encoding="utf-8")
    assert "<code>optimizer.learning_rate</code>" in keys and "<code>pretrain:base</code>" in keys


@pytest.mark.parametrize("link", ["[a page](none.md)", "[a heading](#none)"])
def test_a_link_that_leads_nowhere_is_refused(built, tmp_path, link):
    site = yaml.safe_load((built[0] / "mkdocs.yml").read_text(encoding="utf-8"))
    site["nav"] = [{"Start": "README.md"}]
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(site))
    (tmp_path / "docs").mkdir()
    for text, is_right in (("# Start", True), (f"# Start\n\n{link}", False)):
        (tmp_path / "docs/README.md").write_text(text)
        ran = build(tmp_path)
        assert (ran.returncode == 0) is is_right, ran.stdout + ran.stderr
    assert "does not exist" in ran.stdout + ran.stderr


@pytest.mark.parametrize("link", ["[a file](none.yaml)", "![a picture](none.png)", "[a page](none.md#there)"])
def test_a_file_that_is_not_there_is_refused(tmp_path, link):
    find_links = runpy.run_path(str(LAUNCH / "docs.py"))["find_links"]
    (tmp_path / "there.png").touch()
    page = tmp_path / "page.md"
    page.write_text("![this](there.png) `[code](none.md)` [the web](https://example.org)\n")
    assert find_links(page) == [tmp_path / "there.png"]
    page.write_text(link)
    with pytest.raises(SystemExit, match="leads nowhere"):
        find_links(page)


@pytest.mark.parametrize(
    ("query", "page"),
    {
        "calibration": "configs/guides/trust/",
        "int8": "configs/guides/convert/",
        "few labels": "configs/guides/finetune/",
        "resume": "configs/guides/pretrain/",
        "hard negatives": "configs/guides/embed/",
        "mine_hard_negatives": "reference/python/mine_hard_negatives/",
    }.items(),
)
def test_the_search_finds_the_right_page_first(built, query, page):
    index = json.loads((built[0] / "site/search.json").read_text(encoding="utf-8"))
    split = re.compile(index["config"]["separator"]).split
    first = min(index["items"], key=lambda item: rank(item, split, [*filter(None, split(query))]))
    assert first["location"].partition("#")[0] == page, first["location"]


def rank(item: dict, split, terms: list[str]) -> list[tuple[float, ...]]:
    """Return the key by which the site's search orders its results, for a section of a page.

    As in Zensical's search worker, all terms must begin a word of the section. Its title counts first, then the titles
    of the pages above it, then its text; in each, how many terms stand near each other, how near, and how early; last,
    in how many of the three there are any. The worker takes similar words, too, for a term that begins none.
    """
    found, keys = set(), []
    for order, name in enumerate(("title", "path", "text")):
        parts = item[name] if name == "path" else re.split(r"<[^>]*>", item[name])
        words = [word.lower() for part in parts for word in split(part) if word]
        hits = [(place, term) for place, word in enumerate(words) for term in terms if word.startswith(term)]
        if hits:
            group = first_group(hits)
            width = group[-1] - group[0] + 1 if len(group) > 1 else 10
            keys.append((order, -len(group), width, group[0]))
            found |= {term for _, term in hits}
    return [*keys, (3,)] if found == {*terms} else [(4,)]


def first_group(hits: list[tuple[int, str]]) -> list[int]:
    """Return the places of the first terms that stand within ten words of each other, each once."""
    group = hits[:1]
    for before, hit in pairwise(hits):
        if hit[0] - before[0] > 10 or hit[1] in {term for _, term in group}:
            break
        group.append(hit)
    return [place for place, _ in group]
