import re

import pytest

from bert_jax.serve.metrics import FAMILIES, Metrics, Shared


def read(text: str) -> dict[str, float]:
    """Read the samples of Prometheus' text format, and refuse what does not follow it."""
    samples, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+-]+', line), line
            sample, value = line.rsplit(" ", 1)
            family = re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", sample) if sample not in kinds else sample
            assert family in kinds or sample.split("{")[0] in kinds
            samples[sample] = float(value)
    assert kinds == {family.name: family.type_ for family in FAMILIES}
    return samples


def test_counts_and_histograms_are_written_as_prometheus_reads_them():
    metrics = Metrics()
    metrics.count("te_request_count", "batch")
    metrics.count("te_request_tokens", by=7)
    metrics.set("te_queue_size", 3)
    for seconds in (0.0004, 0.001, 0.02, 99):
        metrics.observe("te_request_duration", seconds)
    samples = read(str(metrics))
    assert (
        samples['te_request_count{method="batch"}'] == 1 and samples['te_request_count{method="single"}'] == 0
    )
    assert samples["te_request_tokens"] == 7 and samples["te_queue_size"] == 3
    buckets = [
        samples[f'te_request_duration_bucket{{le="{bound}"}}'] for bound in ("0.001", "0.025", "60", "+Inf")
    ]
    assert buckets == [2, 3, 3, 4] and samples["te_request_duration_count"] == 4
    assert samples["te_request_duration_sum"] == pytest.approx(99.0214)


def test_the_numbers_of_several_processes_are_summed(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(2 * Metrics.BYTES))
    first, second = (Metrics(Shared(path, 2, n)) for n in range(2))
    first.count("te_request_tokens", by=5)
    second.count("te_request_tokens", by=6)
    assert read(str(first))["te_request_tokens"] == read(str(second))["te_request_tokens"] == 11
    Metrics(Shared(path, 2, 1))  # a process that is started again
    assert read(str(first))["te_request_tokens"] == 5
