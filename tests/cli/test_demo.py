"""What `onbudget demo` says of what it measured, and how it keeps its children."""

from __future__ import annotations

import os
import re
import signal

import click
import pytest
from click.testing import CliRunner

from onbudget.cli.demo import NAIVE, OURS, DemoOptions, command, peak_words, verdict
from onbudget.core.errors import TargetError
from onbudget.engine.children import Server, on_cores, signals_as_ctrl_c, split_cores
from onbudget.prove.compare import Comparison, Row, Window
from tests.support.windows import side, window

GOOD, BAD = window(0.005), window(1.5)


def found(ours: Window, naive: Window, speeds: tuple[float, float] = (2000, 1000), rate: float = 1200) -> Comparison:
    """A comparison whose peak went as these windows did."""
    quiet = (Row(side(OURS), "quiet", 50, [GOOD]), Row(side(NAIVE), "quiet", 50, [GOOD]))
    peak = (Row(side(OURS), "peak", rate, [ours]), Row(side(NAIVE), "peak", rate, [naive]))
    return Comparison(dict(zip((OURS, NAIVE), speeds, strict=True)), quiet, peak)


@pytest.mark.parametrize(
    ("ours", "naive", "words"),
    [
        (GOOD, BAD, "At 1200 requests/s onbudget holds the budget: 100% .* the service by hand misses it: 0%"),
        (GOOD, GOOD, "onbudget holds the budget.*nothing to choose between them"),
        (BAD, BAD, "onbudget misses the budget: 0%.*not what onbudget promises"),
        (BAD, GOOD, "onbudget misses the budget: 0%.*by hand holds it: 100%.*not what onbudget promises"),
        (window(0.005, refused=20), BAD, "onbudget is too close to the budget to say: 95.0%.*--seconds 20"),
        (window(0.028, lag=0.004), BAD, "No verdict, since other programs disturbed.*the generator itself was late"),
    ],
)
def test_the_verdict_says_how_it_went(ours: Window, naive: Window, words: str) -> None:
    """Favourable, even, unfavourable, undecided and void: the sentence says which, with the shares."""
    assert re.search(words, verdict(found(ours, naive), 0.025))


def test_the_peak_is_explained() -> None:
    """The line under the table tells both speeds, and whether the peak lies between them."""
    assert peak_words(found(GOOD, BAD)).startswith("Flat out they answer 2000/s (onbudget) and 1000/s (by hand)")
    assert "more than the slower one can do" in peak_words(found(GOOD, BAD))
    assert "too alike" in peak_words(found(GOOD, GOOD, speeds=(1000, 1000), rate=700))


@pytest.mark.parametrize("flags", [["--p95", "0ms"], ["--p95", "25"], ["--seconds", "0.5"], ["--seconds", "6s"]])
def test_flags_that_cannot_be_meant_are_refused(flags: list[str]) -> None:
    """A budget needs a unit and more than zero, the seconds a number from 1 on; nothing is started."""
    ran = CliRunner().invoke(command, flags)
    assert ran.exit_code == click.UsageError.exit_code
    assert flags[1] in ran.output


def test_the_usual_settings() -> None:
    """25 ms, and 6 seconds for each server at each rate."""
    assert DemoOptions() == DemoOptions(p95=0.025, seconds=6.0)


# ---- children -------------------------------------------------------------------------------------------------------


def test_a_server_that_cannot_start_says_why() -> None:
    """A child that ends before it listens is an error with its exit code and its own words."""
    with (
        Server("it", ("onbudget", "serve", "missing.onnx", "--port", "0")) as server,
        pytest.raises(TargetError, match=r"it ended with exit code 1 .*missing\.onnx: no such file"),
    ):
        server.url()


def _fail_inside(server: Server) -> None:
    with server:
        os.kill(server.pid, 0)  # it is there
        raise KeyError("something else went wrong")


def test_a_child_is_gone_after_its_block() -> None:
    """Whatever ends the block, the child is ended and waited for."""
    server = Server("it", ("http.server", "0"))
    with pytest.raises(KeyError):
        _fail_inside(server)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_cores_are_split_and_given_back() -> None:
    """The server's core and the load's are different ones of ours, and a block gives back what it took."""
    before = os.sched_getaffinity(0)
    server, load = split_cores()
    assert len(before) == 1 or (len(server) == 1 and load and server | load == before and not server & load)
    with on_cores(load):
        assert os.sched_getaffinity(0) == (load or before)
    assert os.sched_getaffinity(0) == before


def _terminated() -> None:
    with signals_as_ctrl_c():
        signal.raise_signal(signal.SIGTERM)


def test_an_end_from_outside_is_a_ctrl_c() -> None:
    """SIGTERM raises KeyboardInterrupt inside the block, so that children are ended, and is as it was after it."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        _terminated()
    assert signal.getsignal(signal.SIGTERM) is before
