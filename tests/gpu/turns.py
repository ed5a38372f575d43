#!/usr/bin/env python3
"""Compares the time of one command under several settings so closely that a per cent can be told from noise.

    turns.py [--seconds S] [--rounds N] [--turns N] [--pieces N] [--at-most ONE/OTHER:RATIO]…
             SETTING [VAR=VALUE…]… -- COMMAND…

A run differs from the next by a few per cent for as long as it lasts (which core, how memory lies), and the machine's
clocks drift. So in each round there is a process for every setting, all at once, and they work in turns, the others
asleep: ABC CBA ABC …. The command speaks as `turn.py` says. Of each round counts the median of the ratios within a turn.
Where the work is N pieces of different sizes that come round and round (--pieces), it is the ratio of the sums of each piece's
lowest times: what a busy machine adds is never negative. What several rounds say is their mean, and how far to trust it is
Student's 95 % interval of that mean.
At least three rounds are made, and more up to N while a bound is undecided and S seconds are not over. Printed are
  round N SETTING MS…           medians of the round, for the reader
  ms SETTING MEDIAN LOWEST      of all turns
  noise SETTING ROUNDS TURNS    per cent: range of the rounds' medians; how far half of a round's turns lie from theirs
  ratio ONE/OTHER MEAN LOW HIGH VERDICT, where a bound was given:
      below    the whole interval lies below the bound
      within   the mean does, and the noise is smaller than what the bound allows
      above    the whole interval lies above the bound
      unclear  the noise is too large to say
  said SETTING …                what the command printed at the end of the last round
Status 0 whatever the verdicts; 1 if the command fails or a setting never gets ready.
"""

import math
import os
import statistics
import subprocess
import sys
import time

# Student's t for 95 % between -t and t, by degrees of freedom from 1.
STUDENT = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23]
LEAST_ROUNDS = 3
# Of the median's standard error over that of single values; of a normal distribution's width over its median deviation.
OF_MEDIAN, OF_DEVIATION = 1.2533, 1.4826


class Job:
    """A process that works when it is told to."""

    def __init__(self, name, settings, command):
        self.name = name
        self.process = subprocess.Popen(
            command, env=os.environ | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hear(self, word):
        """The rest of the next line that begins with `word`."""
        for line in self.process.stdout:
            key, _, rest = line.strip().partition(" ")
            if key == word:
                return rest
        raise RuntimeError(f"{self.name}: ended with status {self.process.wait()} before it said '{word}'")

    def turn(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.hear("ms"))

    def end(self):
        """What it has to say at its end."""
        self.process.stdin.close()
        said = self.process.stdout.read().splitlines()
        if self.process.wait() != 0:
            raise RuntimeError(f"{self.name}: status {self.process.returncode}")
        return said


def play(settings, turns, number, command):
    """One round: the times of each setting, and what each said at its end."""
    names = list(settings)
    names = names[number % len(names) :] + names[: number % len(names)]
    jobs = {}
    try:
        for name in names:
            jobs[name] = Job(name, settings[name], command)
        for name in names:
            jobs[name].hear("ready")
        times = {name: [] for name in settings}
        for turn in range(turns):
            for name in names if turn % 2 == 0 else reversed(names):
                times[name].append(jobs[name].turn())
        return times, {name: jobs[name].end() for name in names}
    finally:
        for job in jobs.values():
            if job.process.poll() is None:
                job.process.kill()


def deviation(values):
    """How far half of the values lie from their median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def lowest(times, pieces):
    """The lowest time of each piece."""
    return [min(times[piece::pieces]) for piece in range(pieces)]


def compare_lowest(times, one, other, pieces):
    """Of one round: the ratio of `one` to `other`, and the standard error that the pieces show."""
    ones, others = lowest(times[one], pieces), lowest(times[other], pieces)
    spread = statistics.stdev(a / b for a, b in zip(ones, others)) if pieces > 1 else math.inf
    return sum(ones) / sum(others), spread / math.sqrt(pieces)


def compare(rounds, one, other, pieces=0):
    """Ratio of `one` to `other`: mean over the rounds, and the half-width of its interval."""
    if pieces:
        found = [compare_lowest(times, one, other, pieces) for times in rounds]
        return interval([ratio for ratio, _ in found], statistics.median(error for _, error in found))
    ratios = [[a / b for a, b in zip(times[one], times[other])] for times in rounds]
    turns = statistics.median(OF_MEDIAN * OF_DEVIATION * deviation(of) / math.sqrt(len(of)) for of in ratios)
    return interval([statistics.median(of_round) for of_round in ratios], turns)


def interval(rounds, error):
    """The mean of what the rounds say, each with a standard error of `error` by itself, and the half-width of its interval."""
    if len(rounds) < 2:
        return rounds[0], math.inf
    # Rounds that happen to agree say no more than what is in them does.
    width = max(statistics.stdev(rounds), error) / math.sqrt(len(rounds))
    return statistics.mean(rounds), STUDENT[min(len(rounds) - 1, len(STUDENT)) - 1] * width


def judge(bound, mean, half):
    """The verdict of one comparison."""
    if mean + half <= bound:
        return "below"
    if mean - half > bound:
        return "above"
    return "within" if mean <= bound and half <= bound - 1 else "unclear"


def decided(rounds, bounds, pieces):
    """Whether further rounds can be spared."""
    if len(rounds) < LEAST_ROUNDS or not bounds:
        return False
    return all(judge(bound, *compare(rounds, *pair, pieces)) in ("below", "above") for pair, bound in bounds.items())


def arguments(words):
    """What the command line says: options, settings, command."""
    options, bounds, settings = {"--seconds": 80.0, "--rounds": 6, "--turns": 8, "--pieces": 0}, {}, {}
    split = words.index("--")
    words, command = words[:split], words[split + 1 :]
    while words and words[0].startswith("--"):
        option, value, *words = words
        if option == "--at-most":
            pair, ratio = value.split(":")
            bounds[tuple(pair.split("/"))] = float(ratio)
        else:
            options[option] = type(options[option])(value)
    for word in words:
        name, assigned, value = word.partition("=")
        if assigned:
            settings[list(settings)[-1]][name] = value
        else:
            settings[name] = {}
    if options["--pieces"] > options["--turns"]:
        sys.exit(f"turns.py: {options['--pieces']} pieces need as many turns, not {options['--turns']}")
    return options, bounds, settings, command


def show(rounds, bounds, pieces):
    """The figures."""
    for name in rounds[0]:
        turns = [time for times in rounds for time in times[name]]
        medians = [statistics.median(times[name]) for times in rounds]
        middle = statistics.median(turns)
        within = statistics.median(deviation(times[name]) for times in rounds)
        print(f"ms {name} {middle:.3f} {min(turns):.3f}")
        print(f"noise {name} {100 * (max(medians) - min(medians)) / middle:.2f} {100 * within / middle:.2f}")
    for (one, other), bound in bounds.items():
        mean, half = compare(rounds, one, other, pieces)
        print(f"ratio {one}/{other} {mean:.4f} {mean - half:.4f} {mean + half:.4f} {judge(bound, mean, half)}")


def main():
    options, bounds, settings, command = arguments(sys.argv[1:])
    begun, longest, rounds, said, failed = time.monotonic(), 0.0, [], {}, False
    try:
        while len(rounds) < options["--rounds"] and not decided(rounds, bounds, options["--pieces"]):
            start = time.monotonic()
            if len(rounds) >= 2 and start + longest > begun + options["--seconds"]:
                break
            times, said = play(settings, options["--turns"], len(rounds), command)
            rounds.append(times)
            longest = max(longest, time.monotonic() - start)
            medians = " ".join(f"{name} {statistics.median(times[name]):.3f}" for name in settings)
            print(f"round {len(rounds)} {medians}", flush=True)
    except (RuntimeError, OSError) as error:
        failed = True
        print(error, file=sys.stderr)
    if rounds:
        show(rounds, bounds, options["--pieces"])
    for name, lines in said.items():
        for line in lines:
            print(f"said {name} {line}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
