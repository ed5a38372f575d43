#!/usr/bin/env python3
"""Figures from the library's JSON reports, for the shell: `report.py FILE NAME…` prints one value for each name.

A name is a path in the first device's entry (`counts.alloc`, `reserved_bytes.peak`), or one of
  in_use_peak    most bytes that were in use against the cap at once (limit less closest headroom)
  intercepted    allocations served by the pool, plus bytes counted outside it, of all devices: 0 means that nothing was
                 seen
  driver_mib     upper bound of what the driver handed out, MiB: peak of the pool plus peak outside it
  notes          the report's remarks, joined
Without names: a line for the reader. Status 1 if the file is not a report or lacks the figure.
"""

import json
import sys


def look_up(report, name):
    """The figure called `name`."""
    if name == "notes":
        return "; ".join(report["notes"])
    if name == "intercepted":
        return sum(
            device["counts"]["alloc"] + device["external_bytes"]["total_allocated"] for device in report["devices"]
        )
    device = report["devices"][0]
    if name == "in_use_peak":
        return device["limit_bytes"] - device["headroom_bytes"]
    if name == "driver_mib":
        return (device["reserved_bytes"]["peak"] + device["external_bytes"]["peak"]) >> 20
    value = device
    for key in name.split("."):
        value = value[key]
    return value


def one_line(report):
    """The report in a line: what was served, from how many driver calls, at which peak."""
    counts = report["devices"][0]["counts"]
    parts = [f"{name} {value}" for name, value in counts.items() if value]
    return f"{' '.join(parts)}; driver memory at most {look_up(report, 'driver_mib')} MiB"


def main():
    path, *names = sys.argv[1:]
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        print("\n".join(str(look_up(report, name)) for name in names) if names else one_line(report))
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"{path}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
