"""prove.batches: what a server's metrics tell of its batches between two looks."""

from __future__ import annotations

import math

from onbudget.prove.batches import read, since

TEXT = """# TYPE onbudget_batch_size histogram
onbudget_batch_size_bucket{le="1.0"} 5.0
onbudget_batch_size_bucket{le="2.0"} 7.0
onbudget_batch_size_bucket{le="4.0"} 7.0
onbudget_batch_size_bucket{le="+Inf"} 8.0
onbudget_batch_size_count 8.0
onbudget_batch_size_sum 15.0
"""
BEFORE = (((1.0, 3.0), (2.0, 3.0), (4.0, 3.0), (math.inf, 3.0)), 3.0)


def test_two_looks_are_subtracted() -> None:
    """Runs, items and how many of each kind; kinds that nobody had are left out, and the last one has no end."""
    assert since(BEFORE, read(TEXT)) == {"runs": 5, "items": 12, "sizes": [[1, 1, 2], [2, 2, 2], [5, None, 1]]}


def test_another_server_tells_nothing() -> None:
    """Text without the histogram, or with one that is none; a server that began anew; other edges; no answer."""
    assert read("# nothing\n") is None
    assert read(TEXT.replace('le="2.0"', 'le="two"')) is None
    assert read(TEXT.replace("_sum 15.0", "_total 15.0")) is None
    look = read(TEXT)
    assert look is not None
    assert since(look, BEFORE) is None
    assert since(BEFORE, (((1.0, 9.0), (math.inf, 9.0)), 9.0)) is None
    assert since(BEFORE, None) is None
