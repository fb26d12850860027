"""Small PyTorch modules, each with one property that exporters trip over."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ConvNet(nn.Module):
    """Convolution, batch norm and dropout: the ordinary case, which must be put into eval mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


class FourRows(nn.Module):
    """Always four rows, whatever came in."""

    def forward(self, x: Any) -> Any:
        return x.view(4, -1)


class FrozenMask(nn.Module):
    """A mask made from the batch size as Python's own number, which every exporter takes for a constant."""

    def forward(self, x: Any) -> Any:
        rows = int(x.shape[0])
        return (torch.zeros(rows, rows) + torch.eye(rows)) @ x


class OpenMask(nn.Module):
    """A mask made from the batch size that stays open."""

    def forward(self, x: Any) -> Any:
        return x * torch.ones(x.shape[0], x.shape[1])


class HarmlessBranch(nn.Module):
    """A branch on a value, the same either way: only the older exporter takes it."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x * 2
        return x + x


class RealBranch(nn.Module):
    """A branch on a value that matters: what one trace writes down is wrong for the other side."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x * 2
        return x * 3


class Centred(nn.Module):
    """Takes the batch's mean away: right at every size, and no row is its own."""

    def forward(self, x: Any) -> Any:
        return x * 2 - x.mean(0, keepdim=True)


class AlwaysDropping(nn.Module):
    """Dropout as a function, which eval() does not reach."""

    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(x, 0.5)


class Heads(nn.Module):
    """A dict of two tensors and an absent one."""

    def forward(self, x: Any) -> Any:
        return {"double": x * 2, "absent": None, "more": (x + 1,)}


class Words(nn.Module):
    """Embeds whole numbers below ten."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3)

    def forward(self, ids: Any) -> Any:
        return self.table(ids).sum(1)


class Talker(nn.Module):
    """Answers with text."""

    def forward(self, x: Any) -> Any:
        return "four"


class Nothing(nn.Module):
    """Answers with no number at all."""

    def forward(self, x: Any) -> Any:
        return x * float("nan")


class Unused(nn.Module):
    """Does not look at its input."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(1, 3))

    def forward(self, x: Any) -> Any:
        return self.p * 2


class Recurrent(nn.Module):
    """An LSTM, rows first."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.cells(x)[0][:, -1]
