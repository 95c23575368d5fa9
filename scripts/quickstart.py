#!/usr/bin/env python3
"""The main job: a Kronserve cluster on this machine trains a network.

Starts one scheduler, preconditioner servers and workers as processes on
loopback, trains with K-FAC through the service, then the same network with
SGD and with Adam. Prints a table, draws curves.svg, stops every process it
started, and prints last `RESULT {json}`.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from kronlocal import curves, processes, progress  # noqa: E402
from kronlocal import report, training  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = ROOT / "scripts" / "quickstart_settings.json"


def parse(arguments):
    settings = json.loads(SETTINGS.read_text())
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=sorted(settings), default="fashion-mnist",
        help="what to train on [%(default)s]")
    add("--quick", action="store_true",
        help="fewer epochs, and a target to match")
    add("--seed", type=positive, default=1, help="first seed [%(default)s]")
    add("--seeds", type=positive, default=1,
        help="runs per optimizer; medians are reported [%(default)s]")
    add("--servers", type=positive, default=2,
        help="preconditioner servers [%(default)s]")
    add("--workers", type=positive, default=2,
        help="training processes [%(default)s]")
    add("--epochs", type=positive, help="instead of the shipped number")
    add("--keep-logs", type=pathlib.Path, metavar="DIR",
        default=ROOT / "build" / "quickstart",
        help="where logs, events and curves.svg go [build/quickstart]")
    add("--bin-dir", type=pathlib.Path, metavar="DIR",
        default=ROOT / "build" / "cpu-release" / "bin",
        help="where the programs are [build/cpu-release/bin]")
    options = parser.parse_args(arguments)
    return options, settings[options.dataset]


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def specs(options, settings):
    """Runs in the order in which they are made."""
    length = settings["quick" if options.quick else "full"]
    for optimizer in report.ORDER:
        for seed in range(options.seed, options.seed + options.seeds):
            yield training.Spec(
                dataset=options.dataset, optimizer=optimizer,
                options=settings["optimizers"][optimizer],
                model=settings["model"],
                steps_per_epoch=(settings["train_rows"]
                                 // settings["model"]["batch"]),
                epochs=options.epochs or length["epochs"],
                eval_every=length["eval_every"],
                target=length["target_accuracy"], seed=seed,
                workers=options.workers)


def run_all(options, settings):
    """Outcomes per optimizer, in order."""
    outcomes = {optimizer: [] for optimizer in report.ORDER}
    with processes.Cluster(options.bin_dir, options.keep_logs) as cluster:
        cluster.start_service(options.servers)
        print(f"scheduler at {cluster.scheduler_address}, {options.servers} "
              f"servers, {options.workers} workers; logs in "
              f"{options.keep_logs}", flush=True)
        for spec in specs(options, settings):
            title = report.LABELS[spec.optimizer]
            if options.seeds > 1:
                title += f" seed {spec.seed}"
            bar = progress.Progress(title, spec)
            outcome = training.train(cluster, spec, bar.event)
            bar.finish(outcome)
            outcomes[spec.optimizer].append(outcome)
    return outcomes


def show(options, settings, outcomes):
    """Prints table and RESULT, draws the curves; True when all is well."""
    target = settings["quick" if options.quick else "full"]["target_accuracy"]
    values = report.result(
        options.dataset, target, outcomes,
        {"servers": options.servers, "workers": options.workers},
        list(range(options.seed, options.seed + options.seeds)))
    print()
    print("\n".join(report.table(target, outcomes, values)))
    path = options.keep_logs / "curves.svg"
    path.write_text(curves.draw(outcomes, target, settings["title"]))
    print(f"\ncurves: {path}")
    for reason in values.get("reasons", []):
        print(f"failed: {reason}")
    print("RESULT " + json.dumps(values), flush=True)
    return values["status"] == "ok"


def main():
    options, settings = parse(sys.argv[1:])
    processes.raise_on_signals()
    try:
        good = show(options, settings, run_all(options, settings))
    except processes.ClusterError as error:
        print(f"\nfailed: {error}", file=sys.stderr)
        print("RESULT " + json.dumps(
            {"dataset": options.dataset, "status": "failed",
             "reasons": [str(error).splitlines()[0]]}), flush=True)
        return 1
    except processes.Stopped as stopped:
        print(f"\nstopped by {stopped}; every process has ended",
              file=sys.stderr)
        return 128 + stopped.signal
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
