"""A small CNN for 64×64 RGB tiles, with the two constants that its training shares with whoever serves it.

`build()` is what `onbudget export model:build --weights weights.pt` calls. A tile costs about 11 million
multiplications.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

# Of the training area's pixels divided by 255, red, green, blue; train.py refuses to train when they are not.
MEAN = (0.2551, 0.2622, 0.3080)
STD = (0.0842, 0.0610, 0.0540)


class TileNet(nn.Module):
    """Tiles (n, 3, 64, 64) float32, normalised with MEAN and STD → logits (n, classes)."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        widths = (3, 16, 32, 64)
        blocks = []
        for before, after in itertools.pairwise(widths):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, tiles: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(tiles).mean(dim=(2, 3)))


def build() -> TileNet:
    """The network before training; its weights are in weights.pt."""
    return TileNet().eval()
