"""The page of a first hour on a slice: for each thing that can go wrong what was predicted, what was measured, and
what to do.

    python -m bert_jax.pod.first_hour predict TYPE PRICE --config FILE:NAME [--config.KEY=VALUE ...]
    python -m bert_jax.pod.first_hour page FOLDER

launch/first_hour.sh calls both. FOLDER has predicted.json (the output of `predict`), check-N.log for each host
(pod/host_check.py), runs.json (pod/measured_runs.py), resumed (the lines that say where a run was resumed) and
failures (what did not work). `page` writes page.md there, prints it, and exits with 1 unless everything passed.
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, to_json, write_atomically
from bert_jax.core.terminal import GREEN, RED, RESET, YELLOW, is_coloured
from bert_jax.models.kernels.kernel_check import MAX_DIFFERENCE
from bert_jax.pod.measured_runs import INTERRUPTED, WHOLE
from bert_jax.pod.preflight import preflight
from bert_jax.pod.topology import slice_of_type

STEPS, LINE_STEPS = 100, 5  # steps of a run, and of a line of its metrics
# Minutes that the parts of the hour take, as the scripts that start and end the slice suppose.
MINUTES = {
    "setting up the hosts": 8,
    "checks": 7,
    f"{STEPS} steps": 5,
    f"{STEPS} steps with two interruptions": 12,
}
LIMIT = 60  # minutes after which the slice is deleted, whatever it does
CORPORA = "data.corpora="
# Margins of verdicts.
SLOWER, FASTER = 1.1, 0.95  # than the serial bound, than the least bound
MEMORY_MARGIN = 1.05
LEAST_BYTES, MOST_BYTES = 0.8, 1.1  # of a checkpoint, which is compressed and has some text
PASS, FAIL, UNKNOWN = "pass", "FAIL", "not measured"
COLOURS = {PASS: GREEN, FAIL: RED, UNKNOWN: YELLOW}


@dataclass(frozen=True)
class Finding:
    """A line of the page."""

    name: str
    predicted: str
    measured: str
    passes: bool | None  # None: it was not measured
    advice: str  # what to do unless it passes

    @property
    def verdict(self) -> str:
        return UNKNOWN if self.passes is None else PASS if self.passes else FAIL


def format_bytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def find_errors(hosts: list[dict], part: str) -> list[str]:
    """Return the errors of the hosts that could not measure a part."""
    return [f"host {host['host']}: {host[part]['error']}" for host in hosts if "error" in host[part]]


def predict(kind: str, price: float, spec: str, overrides: Sequence[str]) -> dict:
    """Return what preflight predicts for a slice of this type. The corpora are on its hosts, and perhaps not here."""
    corpora = [override for override in overrides if override.startswith(CORPORA)]
    if not corpora:
        raise BertJaxError(
            "the first hour needs the corpus that its hosts read; give --config.data.corpora=corpus"
        )
    where = slice_of_type(kind)
    if not Path(corpora[-1].removeprefix(CORPORA)).is_dir():
        overrides = [override for override in overrides if override not in corpora]
    facts = preflight(spec, overrides, str(where), price)
    return facts | {"price": price, "kind": where.chip.device_kind, "chip_memory": where.chip.memory}


def describe_plan(facts: dict) -> str:
    minutes, chips, price = sum(MINUTES.values()), facts["chips"], facts["price"]
    parts = ", ".join(f"{name} {time}" for name, time in MINUTES.items())
    return (
        f"about {minutes} minutes on {chips} chips of {facts['topology']} ({parts}); at {price:g} a chip-hour it costs "
        f"about {minutes / 60 * chips * price:.0f}, and at most {LIMIT / 60 * chips * price:.0f}: after {LIMIT} "
        "minutes it ends"
    )


def find_all(
    predicted: dict, hosts: list[dict], runs: dict, resumed: list[str], failures: list[str]
) -> list[Finding]:
    whole, interrupted = (runs.get(name, {}) for name in (WHOLE, INTERRUPTED))
    findings = [
        Finding("the scripts", "every step succeeds", failure, False, "see the logs of the hosts")
        for failure in failures
    ]
    findings += [judge_versions(hosts), judge_devices(predicted, hosts)]
    findings += judge_kernels(hosts)
    findings += judge_steps(predicted, whole)
    findings += judge_input(predicted, hosts, whole)
    findings += [judge_storage(hosts), judge_checkpoint(predicted, hosts)]
    return [*findings, judge_interruptions(whole, interrupted, resumed), judge_profile(whole)]


def judge_versions(hosts: list[dict]) -> Finding:
    differing = {
        host["host"]: host["versions"]["differing"] for host in hosts if host["versions"]["differing"]
    }
    pythons = sorted({host["versions"]["python"] for host in hosts})
    if differing:
        number, packages = next(iter(differing.items()))
        measured = f"host {number}: {'; '.join(f'{name} {text}' for name, text in sorted(packages.items()))}"
    else:
        compared = min((host["versions"]["compared"] for host in hosts), default=0)
        measured = f"{compared} packages on each of {len(hosts)} hosts, Python {' and '.join(pythons)}"
    good = bool(hosts) and not differing and len(pythons) == 1
    advice = "delete bert-jax/.venv on that host and run launch/setup.sh"
    return Finding("versions", "those of launch/constraints.txt, on all hosts", measured, good, advice)


def judge_devices(predicted: dict, hosts: list[dict]) -> Finding:
    kind, count = predicted["kind"], math.prod(predicted["phases"][0]["mesh"].values())
    slices = sorted({f"{host['devices']['count']} x {host['devices']['kind']}" for host in hosts})
    measured = f"{len(hosts)} hosts, {' and '.join(slices) or 'no answer'}"
    good = len(hosts) == predicted["hosts"] and slices == [f"{count} x {kind}"]
    advice = "compare `type` in settings.sh with the slice (launch/status.sh), and see check-N.log of a missing host"
    return Finding("devices", f"{predicted['hosts']} hosts, {count} x {kind}", measured, good, advice)


def judge_kernels(hosts: list[dict]) -> list[Finding]:
    """Return a line for each kernel, with what the worst host measured."""
    advice = "train with --config.model.attention=xla, and report this line with the versions above"
    predicted = f"within {MAX_DIFFERENCE:.0%} of the definition"
    findings = [
        Finding("kernels", predicted, error, False, advice) for error in find_errors(hosts, "kernels")
    ]
    cases: dict[str, list[dict]] = {}
    for host in hosts:
        if "error" not in host["kernels"]:
            for name, case in host["kernels"].items():
                cases.setdefault(name, []).append(case)
    for name, measured in cases.items():
        worst = max(measured, key=lambda case: (case["fault"] is not None, case["gradients"] or 0))
        text = worst["fault"] or f"values {worst['values']:.2%}, gradients {worst['gradients']:.2%}"
        findings.append(Finding(f"kernel: {name}", predicted, text, not worst["fault"], advice))
    return findings


def lines_of_phases(predicted: dict, lines: Iterable[dict]) -> list[tuple[dict, list[dict]]]:
    """Return the phases with the lines of metrics that are theirs alone; the first line of each also compiled."""
    begin, phases = 0.0, []
    for phase in predicted["phases"]:
        end = begin + phase["share"] * STEPS
        own = [line for line in lines if begin + 2 * LINE_STEPS <= line["step"] <= end + 1e-6]
        phases.append((phase, [line["time"] for line in own if "seconds_per_step" in line.get("time", {})]))
        begin = end
    return phases


def judge_steps(predicted: dict, run: dict) -> list[Finding]:
    findings = []
    for phase, lines in lines_of_phases(predicted, run.get("lines", [])):
        name, seconds = f"a step of {phase['length']} tokens", phase["seconds"]
        bounds = f"{1e3 * seconds['least']:.1f} to {1e3 * seconds['serial']:.1f} ms"
        if not lines:
            advice = f"it needs {STEPS} steps; see the last lines of logs/0.log"
            findings.append(Finding(name, bounds, "", None, advice))
            continue
        taken = median(line["seconds_per_step"] for line in lines)
        good = FASTER * seconds["least"] <= taken <= SLOWER * seconds["serial"]
        share = f"{1e3 * taken:.1f} ms, {seconds['serial'] / taken:.0%} of the serial bound's speed"
        advice = (
            "faster than possible: the chip or its peaks are not those that were supposed"
            if taken < seconds["least"]
            else "see the input's line, then the profile: which operations take longer than their bytes explain?"
        )
        findings.append(Finding(name, bounds, share, good, advice))
    findings.append(judge_links(predicted, run))
    return [*findings, judge_memory(predicted, run)]


def judge_links(predicted: dict, run: dict) -> Finding:
    expected = predicted["phases"][0]["seconds"]["links"]
    name, text = "links, of a step", f"at most {1e3 * expected:.1f} ms"
    taken = run.get("profile", {}).get("collectives")
    if taken is None:
        return Finding(name, text, "", None, "the trace has no operations of a TPU")
    advice = (
        "look in the profile for collectives that wait for a slow host; try the flags of launch/README.md"
    )
    return Finding(name, text, f"{1e3 * taken:.1f} ms", taken <= SLOWER * expected, advice)


def judge_memory(predicted: dict, run: dict) -> Finding:
    needed = max(sum(phase["memory"].values()) for phase in predicted["phases"])
    text = f"{format_bytes(needed)} of {format_bytes(predicted['chip_memory'])}"
    peaks = [
        line["time"]["peak_memory"] for line in run.get("lines", []) if "peak_memory" in line.get("time", {})
    ]
    if not peaks:
        return Finding("memory of a chip", text, "", None, "the device does not say what it uses")
    advice = "preflight may be wrong by as much for other settings: leave that much memory free"
    measured = f"{format_bytes(max(peaks))} at most"
    return Finding("memory of a chip", text, measured, max(peaks) <= MEMORY_MARGIN * needed, advice)


def judge_input(predicted: dict, hosts: list[dict], run: dict) -> list[Finding]:
    findings, errors = [], find_errors(hosts, "input")
    for phase, lines in lines_of_phases(predicted, run.get("lines", [])):
        step = median(line["seconds_per_step"] for line in lines) if lines else phase["seconds"]["scheduled"]
        needed = predicted["rows"] / predicted["hosts"] / step
        name, text = f"input of {phase['length']} tokens", f"{needed:,.0f} rows/s a host are taken"
        advice = "a host with more cores, longer steps (--config.data.batch_size), or --config.data.mask_unit=token"
        speeds = [
            host["input"][str(phase["length"])] for host in hosts if str(phase["length"]) in host["input"]
        ]
        measured = errors[0] if errors else f"{min(speeds):,.0f} rows/s are made" if speeds else ""
        if not measured:
            findings.append(Finding(name, text, "", None, "no host answered"))
        else:
            findings.append(Finding(name, text, measured, not errors and min(speeds) >= needed, advice))
    return findings


def judge_storage(hosts: list[dict]) -> Finding:
    errors = find_errors(hosts, "storage")
    if errors or not hosts:
        measured = errors[0] if errors else "no host answered"
    else:
        slowest = max(host["storage"]["seconds"] for host in hosts)
        measured = f"1 MB there and back in {slowest:.2f} s at most"
    advice = "give the slice's service account the role Storage Object User on the bucket, or export the share writable"
    return Finding("storage", "every host reads what it wrote", measured, bool(hosts) and not errors, advice)


def judge_checkpoint(predicted: dict, hosts: list[dict]) -> Finding:
    state = predicted["phases"][0]["state"]
    name, text = "checkpoint, there and back", f"{format_bytes(state)}, equal"
    results = [host["checkpoint"] for host in hosts if host["checkpoint"]]
    if not results:
        return Finding(name, text, "", None, "the storage must work first")
    advice = "try a bucket in the region of the slice, with a hierarchical namespace"
    if errors := [result["error"] for result in results if "error" in result]:
        return Finding(name, text, errors[0], False, advice)
    size, equal = max(result["bytes"] for result in results), all(result["equal"] for result in results)
    save, restore = (max(result["seconds"][part] for result in results) for part in ("save", "restore"))
    times = f"{save:.1f} s to write, {restore:.1f} s to read"
    measured = f"{format_bytes(size)}, {'equal' if equal else 'DIFFERENT'}; {times}"
    good = equal and LEAST_BYTES * state <= size <= MOST_BYTES * state + 1e6
    return Finding(name, text, measured, good, advice)


def judge_interruptions(whole: dict, interrupted: dict, resumed: list[str]) -> Finding:
    name, text = "a killed process and a preemption", "the bits of the undisturbed run"
    losses = [[(line["step"], line["loss"]) for line in run.get("lines", [])] for run in (whole, interrupted)]
    ended = all(run.get("model") for run in (whole, interrupted))
    equal = ended and whole["model"] == interrupted["model"] and losses[0] == losses[1]
    state = "equal" if equal else "DIFFERENT" if ended else "a run did not end"
    steps = " and ".join(line.split()[-1] for line in resumed)
    measured = f"{f'resumed at step {steps}' if steps else 'never resumed'}; parameters and losses: {state}"
    advice = "see logs/before: a run that ends before it is interrupted shows nothing; other bits are a bug to report"
    return Finding(name, text, measured, equal and len(resumed) >= 2, advice)


def judge_profile(run: dict) -> Finding:
    profile = run.get("profile", {})
    size, error = profile.get("bytes", 0), profile.get("error", "")
    measured = error or (f"{format_bytes(size)} in {profile['directory']}" if size else "none")
    return Finding("profile", "a trace of five steps", measured, size > 0 and not error, "see logs/0.log")


def write_page(predicted: dict, findings: list[Finding]) -> str:
    """Return the page in Markdown."""
    passed = sum(finding.passes is True for finding in findings)
    rows = [
        f"| {finding.name} | {finding.predicted} | {finding.measured} | {finding.verdict} |"
        for finding in findings
    ]
    todo = [f"- **{finding.name}**: {finding.advice}" for finding in findings if not finding.passes]
    lines = [
        f"# The first hour on {predicted['topology']}",
        "",
        f"{passed} of {len(findings)} passed.",
        "",
        "| | predicted | measured | |",
        "|---|---|---|---|",
        *rows,
        *(["", "What to do:", "", *todo] if todo else []),
    ]
    return "\n".join(lines) + "\n"


def show_page(findings: list[Finding]) -> str:
    """Return the page for a terminal, in colours if it has them."""
    lines = []
    for finding in findings:
        colour, reset = (COLOURS[finding.verdict], RESET) if is_coloured() else ("", "")
        lines.append(f"{colour}{finding.verdict:<12}{reset} {finding.name}: {finding.measured or '-'}")
        lines.append(f"{'':13}predicted: {finding.predicted}")
        if not finding.passes:
            lines.append(f"{'':13}what to do: {finding.advice}")
    return "\n".join(lines)


def read_hosts(folder: Path) -> list[dict]:
    """Return what the hosts found, of those that answered: JSON in the last line of their output."""
    hosts = []
    for log in sorted(folder.glob("check-*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines and lines[-1].startswith("{"):
            hosts.append(json.loads(lines[-1]))
    return sorted(hosts, key=lambda host: host["host"])


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def make_page(folder: Path) -> bool:
    """Write and print the page; return whether everything passed."""
    predicted = read_json(folder / "predicted.json")
    runs = read_json(folder / "runs.json") if (folder / "runs.json").exists() else {}
    findings = find_all(
        predicted, read_hosts(folder), runs, read_lines(folder / "resumed"), read_lines(folder / "failures")
    )
    write_atomically(folder / "page.md", write_page(predicted, findings))
    print(show_page(findings))
    return all(finding.passes for finding in findings)


def main(words: Sequence[str]) -> int:
    match words:
        case ["predict", kind, price, "--config", spec, *flags]:
            facts = predict(kind, float(price), spec, [flag.removeprefix("--config.") for flag in flags])
            print(describe_plan(facts), file=sys.stderr)
            print(to_json(facts))
        case ["page", folder]:
            return 0 if make_page(Path(folder)) else 1
        case _:
            raise BertJaxError("first_hour takes `predict TYPE PRICE --config ...` or `page FOLDER`")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BertJaxError as error:
        sys.exit(f"first_hour: {error}")
