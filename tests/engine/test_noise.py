"""Made-up numbers that look random and are the same everywhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from onbudget.engine.noise import Noise


def test_the_stream_is_pinned() -> None:
    """The first numbers of seed 0 are splitmix64's published ones, so files checked anywhere saw the same rows."""
    first = Noise(0).random((2,))
    assert [int(v * 2**53) for v in first] == [0xE220A8397B1DCDAF >> 11, 0x6E789E6AA1B965F4 >> 11]


def test_the_shapes_of_the_distributions() -> None:
    """Uniform, whole numbers and normal have their means and spreads, and a stream goes on instead of repeating."""
    noise = Noise(3)
    uniform, normal = noise.random((100, 200)), noise.standard_normal((20000,))
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    assert np.isfinite(normal).all()
    whole = noise.integers(-2, 3, (5000,))
    assert (whole.min(), whole.max()) == (-2, 2)
    assert not np.array_equal(noise.random((50,)), noise.random((50,)))
    assert np.array_equal(Noise(9).random((50,)), Noise(9).random((50,)))


def test_it_does_not_cost_numpy_random() -> None:
    """Importing numpy.random is what this module is there to avoid."""
    code = "import sys, onbudget.engine.noise as n; n.Noise().random((3,)); print('numpy.random' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
