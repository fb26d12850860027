"""Train the tile classifier on the training bands, and judge it on the held-out ones.

    python train.py                  under two minutes on two cores; writes weights.pt and figures.json
    python train.py --seed 3 --dry   another seed, only to see by how much the figures move

Seeded: the same machine and PyTorch give the same weights. Every epoch draws as many tiles of each kind, turned and
mirrored at random, because three in four training tiles are built-up. Nothing is chosen by the held-out tiles: the
epochs are fixed beforehand, and the last weights are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from data import HELD_OUT, LABELS, SIZE, STRIDES, TRAINING, Tiles, cut, fetch, read
from model import MEAN, STD, TileNet, build
from torch import nn

HERE = Path(__file__).resolve().parent
SEED, EPOCHS, EACH, BATCH, RATE = 7, 14, 192, 32, 3e-3
SMOOTHING = 0.05  # of the targets, so that confidences stay below certainty


def tensor(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> torch.Tensor:
    """(n, 64, 64, 3) uint8 → (n, 3, 64, 64) float32, normalised."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    return (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)


def check_constants(scene: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """SystemExit unless MEAN and STD are the training area's; it prints what they should be."""
    area = np.concatenate([scene[first:last, :, [2, 1, 0]].reshape(-1, 3) for first, last in TRAINING]) / 255
    mean, std = area.mean(0), area.std(0)
    if not (np.allclose(mean, MEAN, atol=5e-5) and np.allclose(std, STD, atol=5e-5)):
        raise SystemExit(f"model.py's constants are not the training area's: MEAN {mean.round(4)}, STD {std.round(4)}")


def draw(truth: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Places of one epoch's tiles: EACH of every label, with repeats, shuffled."""
    drawn = []
    for place in range(len(LABELS)):
        these = torch.nonzero(truth == place).ravel()
        drawn.append(these[torch.randint(len(these), (EACH,), generator=generator)])
    every = torch.cat(drawn)
    return every[torch.randperm(len(every), generator=generator)]


def turned(tiles: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each tile turned by 0, 90, 180 or 270 degrees, and mirrored or not."""
    turns = torch.randint(4, (len(tiles),), generator=generator)
    mirrored = torch.randint(2, (len(tiles),), generator=generator)
    made = [torch.rot90(tile, int(turn), (1, 2)) for tile, turn in zip(tiles, turns, strict=True)]
    return torch.stack([tile.flip(2) if mirror else tile for tile, mirror in zip(made, mirrored, strict=True)])


def train(tiles: Tiles, seed: int) -> TileNet:
    """EPOCHS epochs of Adam with a cosine schedule; a line of progress each, on stderr."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    x, y = tensor(tiles.pixels), torch.from_numpy(tiles.truth)
    net = build().train()
    steps = EPOCHS * math.ceil(len(LABELS) * EACH / BATCH)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    began = time.monotonic()
    for epoch in range(EPOCHS):
        right, lost, drawn = 0, 0.0, draw(y, generator)
        for places in drawn.split(BATCH):
            logits = net(turned(x[places], generator))
            loss = nn.functional.cross_entropy(logits, y[places], label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            right += int((logits.argmax(1) == y[places]).sum())
            lost += float(loss.detach()) * len(places)
        told = f"loss {lost / len(drawn):.4f}, {right / len(drawn):6.1%} right"
        print(f"epoch {epoch + 1:2}/{EPOCHS}: {told}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return net.eval()


# ---- judging --------------------------------------------------------------------------------------------------------


def wilson(right: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % Wilson interval of a share: `right` of `n`."""
    share, room = right / n, z * z / n
    middle = (share + room / 2) / (1 + room)
    half = z / (1 + room) * math.sqrt(share * (1 - share) / n + room / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def disjoint(corners: np.ndarray[Any, Any]) -> list[int]:
    """Places of tiles that do not overlap one another: in reading order, each that still fits."""
    kept: list[int] = []
    for place, corner in enumerate(corners):
        if all(np.abs(corner - corners[other]).max() >= SIZE for other in kept):
            kept.append(place)
    return kept


def judge(net: TileNet, tiles: Tiles) -> dict[str, Any]:
    """Accuracy, intervals and confusion matrix of the clear tiles; then of the ambiguous ones too."""
    with torch.inference_mode():
        answers = net(tensor(tiles.pixels)).argmax(1).numpy()
    clear, right = tiles.only_clear(), answers == tiles.truth
    return {
        "clear": {
            "by_label": clear.counts(),
            **shares(right[tiles.clear], clear.corners),
            "always_the_commonest_label": round(max(clear.counts().values()) / len(clear.truth), 4),
            "confusion_truth_then_answer": confusion(clear.truth, answers[tiles.clear]),
        },
        "clear_and_ambiguous": shares(right, tiles.corners),
    }


def shares(right: np.ndarray[Any, Any], corners: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Accuracy and its interval: as if tiles were independent, which is too narrow, and at as many as fit apart."""
    n, good, alone = len(right), int(right.sum()), len(disjoint(corners))
    return {
        "tiles": n,
        "right": good,
        "accuracy": round(good / n, 4),
        "wilson_95_as_if_independent": [round(end, 4) for end in wilson(good, n)],
        "disjoint_tiles": alone,
        "wilson_95_at_disjoint_tiles": [round(end, 4) for end in wilson(good / n * alone, alone)],
    }


def confusion(truth: np.ndarray[Any, Any], answers: np.ndarray[Any, Any]) -> dict[str, dict[str, int]]:
    """How many tiles of each label got each answer."""
    return {
        name: {other: int(((truth == t) & (answers == a)).sum()) for a, other in enumerate(LABELS)}
        for t, name in enumerate(LABELS)
    }


def learn(seed: int) -> tuple[TileNet, dict[str, Any]]:
    """Data, training and judging → the network and its figures."""
    scene = read(fetch())
    check_constants(scene)
    training, held_out = cut(scene, TRAINING, STRIDES[0]), cut(scene, HELD_OUT, STRIDES[1])
    clear = training.only_clear()
    print(f"training on {len(clear.truth)} clear tiles: {clear.counts()}", file=sys.stderr)
    began = time.monotonic()
    net = train(clear, seed)
    return net, {
        "made_with": {
            "seed": seed,
            "epochs": EPOCHS,
            "seconds": round(time.monotonic() - began, 1),
            "torch": torch.__version__,
        },
        "parameters": sum(p.numel() for p in net.parameters()),
        "training": {"clear_tiles": len(clear.truth), "by_label": clear.counts()},
        "held_out": judge(net, held_out),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tile classifier and judge it on held-out areas.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--dry", action="store_true", help="print the figures, write nothing")
    asked = parser.parse_args()
    net, found = learn(asked.seed)
    if not asked.dry:
        save(net, found)
    print(json.dumps(found["held_out"], indent=2))


def save(net: TileNet, found: dict[str, Any]) -> None:
    """Write weights.pt and figures.json."""
    torch.save(net.state_dict(), HERE / "weights.pt")
    (HERE / "figures.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
