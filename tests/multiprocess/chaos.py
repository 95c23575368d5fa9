"""A training run in which something breaks every few steps.

Everything that is random comes from one seed: which process, which fault, how
long. (Times are not: the same seed meets the job at other moments.)
"""

import argparse
import dataclasses
import pathlib
import random
import sys
import tempfile
import time

import faults
import harness
import job as jobs
import ledger
import service as services

SERVERS, RANKS = 3, 4
STEPS, EVERY = 500, 10
BUDGET = 1.0
# Calm steps of some 0.1 s: a lease is 20 of them, and two faults.
OPTIONS = {"hidden": "512,256", "batch": 1024, "eval-every": 100,
           "step-budget": f"{BUDGET}s"}
# With the scheduler away, a stopping server drains in vain.
SERVER_OPTIONS = {"drain-grace": "3s"}
# A busy machine: what a step may be late without any fault.
NOISE = 0.3


def kill(service, server):
    faults.kill(server.process)
    return lambda: service.start_server(server)


def terminate(service, server):
    faults.terminate(server.process)
    code = harness.wait_for_exit(server.process, 30)
    if code != 0:
        raise AssertionError(server.process.failure())
    return lambda: service.start_server(server)


def freeze(_service, server):
    faults.freeze(server.process)
    return lambda: faults.thaw(server.process)


def silence(service, server):
    service.isolate(server, "silence")
    return lambda: service.isolate(server, "heal")


def cut(service, server):
    service.isolate(server, "cut")
    return lambda: service.isolate(server, "heal")


def lose_answers(_service, server):
    server.door.silence("out")
    return server.door.heal


def part_from_scheduler(_service, server):
    server.uplink.silence()
    return server.uplink.heal


def kill_scheduler(service, _server):
    faults.kill(service.scheduler)
    return service.start_scheduler


def freeze_scheduler(service, _server):
    faults.freeze(service.scheduler)
    return lambda: faults.thaw(service.scheduler)


def move(service, server):
    """No fault, but something for the next one to fall into."""
    service.pin(server)
    return service.unpin


FAULTS = (move, kill, terminate, freeze, silence, cut, lose_answers,
          part_from_scheduler, kill_scheduler, freeze_scheduler)
ON_SCHEDULER = (kill_scheduler, freeze_scheduler)


@dataclasses.dataclass
class Pending:
    target: str
    until: int  # Step at which it ends.
    end: object


class Chaos:
    """Breaks things under `job`, one at each multiple of EVERY steps; a target
    that is broken is left alone until it is whole."""

    def __init__(self, service, job, seed, log):
        self._service = service
        self._job = job
        self._random = random.Random(seed)
        self._log = log
        self._pending = []
        self.count = 0
        self.ledger = ledger.Ledger(service)

    def run(self, steps):
        """Until the job has taken `steps`; then everything is whole."""
        for step in range(EVERY, steps, EVERY):
            self._job.run_to(step, 120)
            self._end_those_due(step)
            self._strike(step)
        for pending in self._pending:
            self._end(pending)
        self._pending = []

    def _end_those_due(self, step):
        for pending in [one for one in self._pending if one.until <= step]:
            self._pending.remove(pending)
            self._end(pending)

    def _end(self, pending):
        pending.end()
        self._log(f"{pending.target} is whole again")

    def _strike(self, step):
        # Both are drawn whether or not they are used: what comes later does
        # not depend on timing.
        fault = self._random.choice(FAULTS)
        server = self._random.choice(self._service.servers)
        lasts = EVERY * self._random.randint(1, 3)
        target = "scheduler" if fault in ON_SCHEDULER else server.name
        if any(one.target == target for one in self._pending):
            return
        end = self._act(fault, server)
        self._pending.append(Pending(target, step + lasts, end))
        self.count += 1
        self._log(f"step {step}: {fault.__name__} {target} for {lasts} steps")


    def _act(self, fault, server):
        if fault not in (kill, terminate):
            return fault(self._service, server)
        self._job.read()
        before = self._job.step()
        self.ledger.note(server)
        end = fault(self._service, server)
        self._job.read()
        # And the steps under way at either end.
        self.ledger.gap_steps += self._job.step() - before + 2
        return end


@dataclasses.dataclass
class Outcome:
    accuracy: float
    waits: list  # Seconds of each step that it waited for the service.
    times: list  # Seconds of each whole step.
    fallback_steps: int
    faults: int
    sums: dict
    made: int
    reached: int


def measure(job, done, chaos):
    steps = job.steps()
    ends = [0.0] + [step["seconds"] for step in steps]
    made = ledger.made_in([step["step"] for step in steps], RANKS)
    reached = made  # Exactly, when nothing broke.
    if chaos.count > 0:
        reached = ledger.made_in(
            [step["step"] for step in steps if step["fallbacks"] == 0], RANKS)
        reached -= ledger.made_in(range(chaos.ledger.gap_steps), RANKS)
    return Outcome(
        accuracy=done["final_accuracy"],
        waits=[step["waited_seconds"] for step in steps],
        times=[end - begin for begin, end in zip(ends, ends[1:])],
        fallback_steps=done["fallback_steps"], faults=chaos.count,
        sums=chaos.ledger.close(), made=made, reached=reached)


def train(folder, steps, seed=None, log=None):
    """One run; without a seed, a calm one. All ranks have one hash."""
    with services.Service(folder, SERVERS,
                          server_options=SERVER_OPTIONS) as service:
        job = jobs.Job(service, RANKS, **{**OPTIONS, "max-steps": steps})
        job.run_to(0)
        chaos = Chaos(service, job, seed, log)
        if seed is not None:
            chaos.run(steps)
        job.run_to(steps - 2, 120)
        # The job's end frees its layers: what is open then counts as lost.
        done = job.finish(120)
        job.assert_ranks_agree()
        return measure(job, done, chaos)


def check(calm, rough, steps):
    """Faults of `rough`, one line each."""
    found = []
    if len(rough.times) != steps:
        found.append(f"{len(rough.times)} steps instead of {steps}")
    if max(rough.waits) > max(calm.waits) + BUDGET + NOISE:
        found.append(f"a step waited {max(rough.waits):.2f} s")
    if max(rough.times) > max(calm.times) + BUDGET + NOISE:
        found.append(f"a step took {max(rough.times):.2f} s, calm ones at "
                     f"most {max(calm.times):.2f} s")
    # Each fault may cost one budget when it comes and one when it goes.
    long_steps = sum(wait > 0.7 * BUDGET for wait in rough.waits)
    if long_steps > 2 * rough.faults:
        found.append(f"{long_steps} long steps after {rough.faults} faults")
    if rough.accuracy < calm.accuracy - 0.01:
        found.append(f"accuracy {rough.accuracy:.4f}, calm "
                     f"{calm.accuracy:.4f}")
    return found


def report(name, outcome):
    """Prints it; returns what is wrong with its sums, one line each."""
    waits = sorted(outcome.waits)
    print(f"{name}: accuracy {outcome.accuracy:.4f}, {outcome.faults} faults, "
          f"{outcome.fallback_steps} of {len(waits)} steps with fallbacks, "
          f"step {sum(outcome.times) / len(waits):.3f} s in the mean, longest "
          f"{max(outcome.times):.2f} s; waits: median "
          f"{waits[len(waits) // 2]:.3f} s, longest {waits[-1]:.2f} s")
    return ledger.check(name, outcome.sums, outcome.made, outcome.reached)


def compare(seed, steps, log):
    """Prints both runs; returns what is wrong, one line each."""
    print(f"seed {seed}, {steps} steps, {SERVERS} servers, {RANKS} ranks",
          flush=True)
    with tempfile.TemporaryDirectory() as folder:
        calm = train(pathlib.Path(folder) / "calm", steps)
        found = report("calm", calm)
        rough = train(pathlib.Path(folder) / "rough", steps, seed, log)
        return found + report("rough", rough) + check(calm, rough, steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin-dir", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    harness.BIN = arguments.bin_dir
    found = compare(arguments.seed, arguments.steps,
                    lambda line: print(line, flush=True))
    for line in found:
        print(f"seed {arguments.seed}: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
