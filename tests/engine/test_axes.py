"""Which axis counts items, over every shape that a file's inputs have."""

from __future__ import annotations

import pytest

from onbudget.engine.axes import batch_axis
from onbudget.engine.session import Port


@pytest.mark.parametrize(
    ("shapes", "size", "why"),
    [
        ([(None, 3, 8, 8)], None, ""),
        ([(None, 3), (None,)], None, ""),
        ([(4, 3)], 4, ""),
        ([(1, 3)], 1, "fixes the batch axis at 1"),
        ([(None, 3), (4, 3)], 0, "do not share their first axis"),
        ([(None, 3), ()], 0, "has no axes"),
        ([], 0, "has no inputs"),
    ],
    ids=str,
)
def test_the_shared_first_axis_counts_items(shapes: list[tuple[int | None, ...]], size: int | None, why: str) -> None:
    """Open, frozen, or none at all; and where items can't share a run, a reason that a person understands."""
    found, reason = batch_axis([Port(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)])
    assert found == size
    assert why in reason
    assert bool(reason) == bool(why)
