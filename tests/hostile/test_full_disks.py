"""A disk that is full at many points of each verb: one clear line, nothing half-written, and the same command goes on.

The disks are small ones in memory, which root may mount: `pytest -m long -s tests/hostile/test_full_disks.py`.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.hostile import verbs
from tests.hostile.outcomes import LONGEST
from tests.hostile.result_cache import kept_and_shown
from tests.hostile.verbs import CASES

pytestmark = pytest.mark.long
POINTS = 20
PAGE = 4096
BAD = (
    "half",
    "traceback",
    "many lines",
    "no line",
    "leftover",
    "other bytes",
    "hang",
    "cannot be repeated",
    "crash",
)


@pytest.fixture(scope="module")
def kept():
    yield from kept_and_shown("full-disks")


class Disk:
    """A disk in memory of so many pages."""

    def __init__(self, folder: Path, pages: int):
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={pages * PAGE}", "tmpfs", folder], check=True)

    def resize(self, pages: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={pages * PAGE}", self.folder], check=True)

    def used(self) -> int:
        disk = os.statvfs(self.folder)
        return disk.f_blocks - disk.f_bfree

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", self.folder], check=True)


@pytest.mark.parametrize("verb", CASES)
def test_a_full_disk_is_one_line_and_loses_nothing(verb, small, forks, kept, tmp_path):
    case, material = CASES[verb], verbs.material(small)
    with Disk(tmp_path / "whole", 1 << 18) as disk:
        case.begin(material, disk.folder)
        first = disk.used()
        code = forks.wait(forks.start(case.arguments(material, disk.folder), tmp_path / "said"))
        assert code == 0 and case.contents(disk.folder), (tmp_path / "said").read_text()
        whole, pages = case.contents(disk.folder), disk.used()  # and what is there at first may be copied
        listing = case.listing(disk.folder)
    for point in range(POINTS):
        tried = f"{verb} {point}"
        if tried in kept:
            continue
        with Disk(tmp_path / str(point), 1 << 18) as disk:
            case.begin(material, disk.folder)
            disk.resize(max(1, first + pages * point // POINTS))
            arguments = case.arguments(material, disk.folder)
            code = forks.wait(forks.start(arguments, tmp_path / "said"))
            outcome = judged(case, code, (tmp_path / "said").read_text(), disk, whole)
            if outcome not in BAD:
                disk.resize(1 << 18)
                code = forks.wait(forks.start(arguments, tmp_path / "again"))
                refused = outcome == "whole" and not case.again
                if code != (1 if refused else 0):
                    outcome = "cannot be repeated"
                elif case.contents(disk.folder) != whole:
                    outcome = "other bytes"
                elif case.listing(disk.folder) != listing:
                    outcome = "leftover"
        if outcome in BAD:
            (tmp_path / f"said {point}").write_text((tmp_path / "said").read_text())
        kept.add(tried, outcome if outcome not in BAD else f"{outcome} ({verb})")
    wrong = {tried: outcome for tried, outcome in kept.outcomes.items() if outcome.startswith(BAD)}
    assert not {tried: outcome for tried, outcome in wrong.items() if tried.startswith(f"{verb} ")}


def judged(case, code: int | None, said: str, disk: Disk, whole: dict) -> str:
    contents, lines = case.contents(disk.folder), said.splitlines()
    if code is None:
        return "hang"
    if code < 0:
        return "crash"
    if "Traceback" in said:
        return "traceback"
    if contents not in (None, whole):
        return "half"
    if code == 0:
        return "whole" if contents else "no line"
    # A run says how far it has come before; what ends it is the last line.
    if not lines or "No space left" not in lines[-1] or len(lines[-1]) > LONGEST:
        return "no line"
    if len(lines) > 1 + case.says:
        return "many lines"
    return "one clear line"
