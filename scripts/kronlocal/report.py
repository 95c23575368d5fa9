"""Turns the outcomes of runs into a table and a RESULT."""

import statistics

ORDER = ("kfac", "sgd", "adam")
LABELS = {"kfac": "K-FAC", "sgd": "SGD", "adam": "Adam"}


def median_or_none(values):
    """Median over the seeds; None as soon as one seed has no value."""
    if not values or any(value is None for value in values):
        return None
    return statistics.median(values)


def result(dataset, target, outcomes, servers, seeds):
    """The RESULT of the main job; `outcomes` maps optimizer -> [Outcome]."""
    reached = {name: [run.to_target(target) for run in runs]
               for name, runs in outcomes.items()}
    kfac = outcomes["kfac"]
    values = {
        "dataset": dataset,
        "target_accuracy": target,
        "steps_to_target": {
            name: median_or_none([steps for steps, _ in pairs])
            for name, pairs in reached.items()},
        "seconds_to_target": {
            name: rounded(median_or_none([seconds for _, seconds in pairs]), 3)
            for name, pairs in reached.items()},
        "final_accuracy": {
            name: rounded(statistics.median(
                run.final_accuracy for run in runs), 4)
            for name, runs in outcomes.items()},
        "fallback_steps": sum(run.fallback_steps for run in kfac),
        "layers_preconditioned": min(run.layers_preconditioned
                                     for run in kfac),
        "servers": servers["servers"],
        "workers": servers["workers"],
        "seeds": seeds,
    }
    reasons = failures(values, kfac)
    values["status"] = "failed" if reasons else "ok"
    if reasons:
        values["reasons"] = reasons
    return values


def failures(values, kfac):
    """Why the run does not count as good; empty when it does."""
    reasons = []
    layers = max(run.layers for run in kfac)
    if values["fallback_steps"] > 0:
        named = sorted({layer for run in kfac
                        for layer in run.fallen_back_layers})
        reasons.append(f"{values['fallback_steps']} steps with fallbacks"
                       + (f" of {', '.join(named)}" if named else ""))
    if layers == 0 or values["layers_preconditioned"] < layers:
        reasons.append(f"{values['layers_preconditioned']} of {layers} "
                       "registered layers preconditioned")
    if values["steps_to_target"]["kfac"] is None:
        ends = sorted({run.end for run in kfac} - {"completed"})
        reasons.append("K-FAC did not reach the target accuracy "
                       f"{values['target_accuracy']:g}"
                       + (f" ({', '.join(ends)})" if ends else ""))
    return reasons


def rounded(value, digits):
    return None if value is None else round(value, digits)


def shown(value, form):
    return "-" if value is None else format(value, form)


def epoch_rows(outcomes):
    runs = {name: outcomes[name][0].epoch_accuracies() for name in outcomes}
    for epoch in range(max(len(values) for values in runs.values())):
        yield [f"accuracy, epoch {epoch + 1}, %"] + [
            shown(100 * runs[name][epoch] if epoch < len(runs[name]) else None,
                  ".2f") for name in outcomes]


def table(target, outcomes, values):
    """Lines of text; one column per optimizer."""
    percent = f"{100 * target:g} %"
    rows = [[""] + [LABELS[name] for name in outcomes]]
    rows += epoch_rows(outcomes)
    rows.append([f"steps to {percent}"] + [
        shown(values["steps_to_target"][name], "g") for name in outcomes])
    rows.append([f"seconds to {percent}"] + [
        shown(values["seconds_to_target"][name], ".1f") for name in outcomes])
    rows.append(["milliseconds per step"] + [
        shown(1e3 * runs[0].seconds / runs[0].steps if runs[0].steps else None,
              ".1f") for runs in outcomes.values()])
    for label, field in (("waiting for the service", "waited_seconds"),
                         ("averaging gradients", "exchange_seconds")):
        rows.append([f"share of a step {label}, %"] + [
            shown(100 * getattr(runs[0], field) / runs[0].seconds
                  if runs[0].seconds else None, ".1f")
            for runs in outcomes.values()])
    kfac = outcomes["kfac"][0]
    rows.append(["steps with fallbacks", f"{values['fallback_steps']}"])
    rows.append(["layers preconditioned",
                 f"{values['layers_preconditioned']} of {kfac.layers}"])
    return align(rows)


def align(rows):
    columns = max(len(row) for row in rows)
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(len(row[column]) for row in rows)
              for column in range(columns)]
    return ["  ".join([row[0].ljust(widths[0])] + [
        cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]).rstrip()
        for row in rows]
