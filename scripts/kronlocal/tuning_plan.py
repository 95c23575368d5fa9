"""What scripts/tune.py searches: models, lengths, grids."""

import dataclasses

from kronlocal import search

# The first is the seed of all trials.
SEEDS = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Plan:
    title: str
    model: dict
    train_rows: int
    epochs: int
    quick_epochs: int
    eval_every: int
    # Taken off SGD's best accuracy to get the target: two standard deviations
    # of an accuracy that is measured on so many test images.
    margin: float
    # Start trials per optimizer; all get more together when one needs them.
    trials: int
    # Options that are not searched.
    fixed: dict
    # Per optimizer: axes, and the index ranges of the start grid.
    grids: dict


def grids(sgd_lr, adam_lr, kfac_lr, kfac_damping):
    return {
        "sgd": ((search.geometric("lr", sgd_lr, 2),
                 search.one_minus("momentum", 0.1)),
                range(-1, 2), range(-1, 2)),
        "adam": ((search.geometric("lr", adam_lr, 2),
                  search.one_minus("beta1", 0.1)),
                 range(-1, 2), range(-1, 2)),
        "kfac": ((search.geometric("lr", kfac_lr, 2),
                  search.geometric("damping", kfac_damping, 10 ** 0.5)),
                 range(-1, 2), range(-1, 2)),
    }


PLANS = {
    "fashion-mnist": Plan(
        title="Fashion-MNIST, MLP 784-256-128-10, batch 256",
        model={"model": "mlp", "hidden": "256,128", "batch": 256},
        train_rows=60000,
        epochs=6, quick_epochs=2, eval_every=20, margin=0.006, trials=16,
        fixed={"sgd": {}, "adam": {},
               "kfac": {"momentum": 0.9}},
        grids=grids(0.05, 1e-3, 0.1, 0.1)),
    "digits": Plan(
        title="Digits, MLP 64-64-32-10, batch 64",
        model={"model": "mlp", "hidden": "64,32", "batch": 64},
        train_rows=1437,
        epochs=20, quick_epochs=10, eval_every=5, margin=0.015, trials=16,
        fixed={"sgd": {}, "adam": {},
               "kfac": {"momentum": 0.9}},
        grids=grids(0.05, 2e-3, 0.1, 0.1)),
}
