"""Where every contribution of a job ended.

A rank sends one contribution per layer and kind at each factor step. A server
counts each that reached it once: merged, empty, void, refused, late or lost
(PROTOCOL.md 3); repeats of one identity apart, as duplicates.

What cannot be known from outside: a killed server takes its counts along. They
are asked for just before, so at most what came in between is missing. And what
was for a server that does not answer was never sent. So a calm run's sum is
exactly what the ranks sent, and a rough run's is at most that: more would be a
contribution that counted twice.
"""

import job as jobs

ENDS = ("merged", "empty", "void", "refused", "late", "lost")
KINDS = 2


def expected(steps, ranks):
    """Contributions of a run of `steps`, one rank per node."""
    every = jobs.OPTIONS["factor-update-steps"]
    return -(-steps // every) * len(jobs.LAYERS) * KINDS * ranks


class Ledger:
    """The newest known counters of every incarnation of every server."""

    def __init__(self, service):
        self._service = service
        self._known = {}

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


def check(name, sums, sent, exact):
    total = sum(sums[end] for end in ENDS)
    if total > sent:
        return [f"{name}: {total} contributions ended, {sent} were made"]
    if exact and total < sent:
        return [f"{name}: {sent - total} of {sent} contributions are unknown"]
    print(f"{name}: {sent} contributions made, {sent - total} of them not sent "
          "or unknown with a killed server")
    return []
