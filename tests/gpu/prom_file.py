"""Files for the textfile collector of Prometheus: reads them as strictly as its format is written, and holds them against reports.

`prom_file.py FILE…`: prints how many series of how many families there are; status 1, and why, if a file is none, or if they cannot
stand in one folder.
"""

import functools
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
# Base units and what stands for itself; what counts up ends with `_total` besides.
UNITS = ("_bytes", "_seconds", "_ratio", "_info", "_running", "_handles")

# Where each figure of a device stands in the report.
REPORTED = {
    "memory_requested_bytes": "requested_bytes.current",
    "memory_allocated_bytes": "allocated_bytes.current",
    "memory_reserved_bytes": "reserved_bytes.current",
    "memory_external_bytes": "external_bytes.current",
    "memory_requested_peak_bytes": "requested_bytes.peak",
    "memory_allocated_peak_bytes": "allocated_bytes.peak",
    "memory_reserved_peak_bytes": "reserved_bytes.peak",
    "memory_external_peak_bytes": "external_bytes.peak",
    "memory_limit_bytes": "limit_bytes",
    "memory_total_bytes": "total_bytes",
    "largest_free_block_bytes": "largest_free_block_bytes",
    "fragmentation_ratio": "fragmentation.at_exit",
    "allocated_bytes_total": "allocated_bytes.total_allocated",
    "allocations_total": "counts.alloc",
    "frees_total": "counts.free",
    "cache_hits_total": "counts.cache_hit",
    "driver_allocations_total": "counts.driver_alloc",
    "driver_frees_total": "counts.driver_free",
    "driver_allocation_seconds_total": "driver_time.alloc_ns",
    "driver_free_seconds_total": "driver_time.free_ns",
    "barriers_total": "counts.barrier",
    "out_of_memory_total": "counts.oom",
    "retries_total": "counts.retry",
    "garbage_collections_total": "counts.gc",
    "invalid_frees_total": "counts.invalid_free",
    "forwarded_total": "counts.forwarded",
}
OF_RANGES = {
    "range_mapped_bytes": "mapped.mapped_bytes",
    "range_unmapped_bytes": "mapped.loose_bytes",
    "range_span_bytes": "mapped.spanned_bytes",
    "range_handles": "mapped.handles",
    "range_remaps_total": "mapped.remaps",
    "range_moved_handles_total": "mapped.moved_handles",
    "range_moved_bytes_total": "mapped.moved_bytes",
    "range_growth_seconds_total": "mapped.map_ns",
}
OF_PROCESS = ["process_info", "process_running", "last_update_timestamp_seconds"]
OF_KINDS = "memory_external_kind_bytes"


class Metrics:
    """`families`: name to (kind, help). `series`: (name, labels as a sorted tuple) to value."""

    def __init__(self, text):
        self.families, self.series = {}, {}
        self.help, self.family = {}, None
        assert text.endswith("\n"), "the last line does not end"
        for line in text.splitlines():
            try:
                self.take(line)
            except (AssertionError, ValueError) as error:
                raise AssertionError(f"'{line}': {error}") from None
        empty = self.families.keys() - {name for name, _ in self.series}
        assert not (self.help.keys() - self.families.keys()), "a HELP without a TYPE"
        assert not {name for name in empty if name != f"gpucache_{OF_KINDS}"}, f"families without a figure: {empty}"

    def take(self, line):
        if line.startswith("# HELP "):
            name, _, text = line[7:].partition(" ")
            assert text and name not in self.help, "no text, or a second one"
            self.help[name] = text
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert NAME.match(name) and name.startswith("gpucache_"), "not a name of ours"
            assert name in self.help and name not in self.families, "no HELP before, or a second TYPE"
            assert kind in ("gauge", "counter"), "of no kind that is used"
            assert (kind == "counter") == name.endswith("_total"), "what counts up ends with _total, and only that"
            assert kind == "counter" or name.endswith(UNITS), "no base unit in the name"
            self.families[name] = (kind, self.help[name])
            self.family = name
        else:
            name, _, rest = line.partition("{")
            assert name == self.family, "not under its own TYPE"
            labels, at = {}, 0
            while rest[at] != "}":
                found = LABEL.match(rest, at)
                assert found and found[1] not in labels, "labels that are none"
                labels[found[1]] = found[2]
                at = found.end() + (rest[found.end()] == ",")
            assert rest[at + 1] == " " and {"host", "pid"} <= labels.keys(), "no value, or not whose it is"
            value, key = float(rest[at + 2 :]), (name, tuple(sorted(labels.items())))
            assert value == value and abs(value) != float("inf") and value >= 0, "no such figure"
            assert key not in self.series, "a second time"
            self.series[key] = value

    def figure(self, name, **labels):
        """The one figure of a family that has these labels."""
        wanted = set(labels.items())
        found = [value for (family, has), value in self.series.items() if family == f"gpucache_{name}" and wanted <= set(has)]
        assert len(found) == 1, f"{len(found)} figures of {name} with {labels}"
        return found[0]


def read(path):
    with open(path, encoding="utf-8") as file:
        return Metrics(file.read())


def together(all_metrics):
    """Whether files can be read as one, as the collector does. Returns how many series of how many families."""
    families, series = {}, {}
    for metrics in all_metrics:
        for name, description in metrics.families.items():
            assert families.setdefault(name, description) == description, f"{name} is described in two ways"
        assert not series.keys() & metrics.series.keys(), "the same series in two files"
        series |= metrics.series
    return len(series), len(families)


def same(figure, reported, name):
    """Within what other threads of the process may have done between the two writings: a per cent, and a little."""
    little = (1 << 20) if "bytes" in name else 0.01 if "seconds" in name or "ratio" in name else 64
    return abs(figure - reported) <= 0.01 * max(figure, reported) + little


def against_report(metrics, report):
    """Holds the last figures of a process against its report; returns how many agree exactly, and of how many."""
    exact = total = 0
    expected = set(OF_PROCESS)
    for device in report["devices"]:
        expected |= REPORTED.keys() | {OF_KINDS}
        tables = REPORTED | (OF_RANGES if "mapped" in device else {})
        expected |= tables.keys()
        labels = {"device": str(device["ordinal"]), "gpu": device["name"], "pid": str(report["process"]["pid"])}
        for name, path in tables.items():
            reported = functools.reduce(lambda part, key: part.get(key, {}), path.split("."), device) or 0
            reported = reported / 1e9 if path.endswith("_ns") else reported
            figure = metrics.figure(name, **labels)
            assert same(figure, reported, name), f"{name} is {figure}, the report says {reported}"
            exact, total = exact + (figure == reported), total + 1
        for kind, gauge in device.get("external_by_kind", {}).items():
            figure = metrics.figure(OF_KINDS, kind=kind, **labels)
            assert same(figure, gauge["current"], OF_KINDS), f"{kind}: {figure}, the report says {gauge['current']}"
            exact, total = exact + (figure == gauge["current"]), total + 1
    known = {f"gpucache_{name}" for name in expected}
    assert metrics.families.keys() == known, f"families but in one: {metrics.families.keys() ^ known}"
    return exact, total


def main():
    try:
        print("%d series of %d families" % together([read(path) for path in sys.argv[1:]]))
    except AssertionError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
