"""In turns: every round, each contestant after the other does the same work, the machine's limit before and after."""

import statistics
import time
from dataclasses import dataclass, field
from typing import Callable, Optional

import library


@dataclass
class Contestant:
    run: Callable[[], object]
    result: Optional[Callable[[], object]] = None  # what it last computed, as a float tensor to compare with heed's
    amount: Optional[float] = None  # operations or bytes, if not the work's


@dataclass
class Work:
    """One table row. The first contestant is heed's."""

    name: str  # "attention causal"
    shape: dict
    scalar: str
    threads: int
    unit: str  # "GFLOP/s", "GB/s", or "KB/s", which has no limit
    amount: float  # operations or bytes
    contestants: dict = field(default_factory=dict)
    tolerance: float = 1e-3  # of the largest difference from heed's result, results being of order 1


@dataclass
class Budget:
    seconds: float  # for a work
    rounds: int  # at most; at least 3
    sample: float  # seconds that a measurement lasts at least


QUICK = Budget(seconds=3, rounds=9, sample=0.01)
THOROUGH = Budget(seconds=15, rounds=15, sample=0.05)


def settle():
    """Waits until the process is idle: pools of threads go on spinning for a while after their work."""
    for _ in range(100):
        cpu = time.process_time()
        time.sleep(0.002)
        if time.process_time() - cpu < 0.0005:
            return


def timed(run, times=1):
    begin = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - begin) / times


def limit_of(work):
    if work.unit == "GFLOP/s":
        return library.peak(work.threads)
    if work.unit == "GB/s":
        return library.read(work.threads, work.amount)
    return None


def quartiles(values):
    if len(values) < 2:
        return {"q1": values[0], "median": values[0], "q3": values[0]}
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return {"q1": q1, "median": median, "q3": q3}


def largest_difference(result, other):
    return (result.double() - other.double()).abs().max().item()


def measure(work, budget):
    """The records of a work, one a contestant. Ratios are of times in the same round: how many times faster heed is."""
    first = next(iter(work.contestants))
    errors = {}
    times = {}
    warm = 0
    for name, contestant in work.contestants.items():
        warm += timed(contestant.run)
        if contestant.result is not None:
            reference = work.contestants[first].result()
            errors[name] = largest_difference(reference, contestant.result())
    for name, contestant in work.contestants.items():
        once = timed(contestant.run)
        times[name] = max(1, round(budget.sample / max(once, 1e-7)))
        warm += once * times[name]

    rounds = max(3, min(budget.rounds, int(budget.seconds / max(warm, 1e-3))))
    seconds = {name: [] for name in work.contestants}
    shares = {name: [] for name in work.contestants}
    limits = []
    names = list(work.contestants)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            contestant = work.contestants[name]
            settle()
            before = limit_of(work)
            if times[name] > 1:
                contestant.run()  # its caches, its threads awake
            each = timed(contestant.run, times[name])
            after = limit_of(work)
            seconds[name].append(each)
            if before is not None:
                limits += [before, after]
                shares[name].append((contestant.amount or work.amount) * 1e-9 / each / ((before + after) / 2))

    scale = 1e-3 if work.unit == "KB/s" else 1e-9
    records = []
    for name, contestant in work.contestants.items():
        records.append(
            {
                "work": work.name,
                "shape": work.shape,
                "scalar": work.scalar,
                "threads": work.threads,
                "peer": name,
                "unit": work.unit,
                "rate": scale * (contestant.amount or work.amount) / statistics.median(seconds[name]),
                "limit": statistics.median(limits) if limits else None,
                "of_limit": statistics.median(shares[name]) if limits else None,
                "ratio": quartiles([theirs / ours for ours, theirs in zip(seconds[first], seconds[name])]),
                "seconds": statistics.median(seconds[name]),
                "rounds": rounds,
                "max_error": errors.get(name),
                "agrees": errors[name] <= work.tolerance if name in errors else None,
            }
        )
    return records
