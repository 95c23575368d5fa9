"""Where every contribution of a job ended.

A rank sends one contribution per layer and kind at each factor step. A server
counts each that reached it once: merged, empty, void, refused, late or lost
(PROTOCOL.md 3); repeats of one identity apart, as duplicates.

What cannot be known from outside: a server that ends takes its counts along.
They are asked for just before; what comes in after that is missing. And what
was for a server that does not answer was never sent. So a calm run's sum is
exactly what the ranks made. A rough run's is at most that (more would be a
contribution that counted twice), and at least what was made in the steps that
reached every server (none fell back), less those in the gaps of the asking.
"""

import job as jobs

ENDS = ("merged", "empty", "void", "refused", "late", "lost")
KINDS = 2


class Ledger:
    """The newest known counters of every incarnation of every server."""

    def __init__(self, service):
        self._service = service
        self._known = {}
        self.gap_steps = 0  # Whose contributions a server may have taken along.

    def note(self, server):
        """Asks `server`, which may not answer."""
        status = self._service.ask(server)
        if status:
            self._known[status["incarnation"]] = status["counters"]

    def close(self):
        """{end: contributions}, over all servers and their former lives."""
        for server in self._service.servers:
            self.note(server)
        names = (*ENDS, "duplicate")
        return {name: sum(counters[f"contributions_{name}"]
                          for counters in self._known.values())
                for name in names}


def made_in(steps, ranks):
    """Contributions that the ranks made in `steps`, one rank per node."""
    every = jobs.OPTIONS["factor-update-steps"]
    factor_steps = sum(step % every == 0 for step in steps)
    return factor_steps * len(jobs.LAYERS) * KINDS * ranks


def check(name, sums, made, reached):
    """What is wrong with `sums`, one line each; `made` and `reached` are the
    most and the fewest contributions that can have come to an end."""
    total = sum(sums[end] for end in ENDS)
    print(f"{name}: contributions {sums}; {total} ended, {made} made, "
          f"{reached} of them in steps that reached every server")
    if total > made:
        return [f"{name}: {total - made} contributions counted twice"]
    if total < reached:
        return [f"{name}: {reached - total} contributions are unaccounted for"]
    return []
