"""prove.alarm: rings near its moment, once, and never after it was closed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import pytest

from onbudget.prove.alarm import Alarm, FileAlarm, LoopAlarm, make_alarm

linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")
KINDS = [LoopAlarm, pytest.param(FileAlarm, marks=linux)]
Make = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Alarm]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("wait", [0.02, 0.0002, 0.0, -1.0])
def test_a_tick_that_sets_it_anew_until_the_moment_has_come_is_never_early(make: Make, wait: float) -> None:
    """As the generator uses it: each ring looks at the clock, and sets the alarm again if it was rung early."""

    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[float] = loop.create_future()
        moment = time.monotonic() + wait
        rings = 0

        def ring() -> None:
            nonlocal rings
            rings += 1
            now = time.monotonic()
            if now >= moment:
                done.set_result(now - moment)
            else:
                alarm.set(moment)

        alarm = make(loop, ring)
        alarm.set(moment)
        late = await asyncio.wait_for(done, 10)
        alarm.close()
        await asyncio.sleep(0.003)
        return rings, late

    rings, late = asyncio.run(main())

    assert late >= 0
    assert rings >= 1


@pytest.mark.parametrize("make", KINDS)
def test_a_closed_alarm_does_not_ring(make: Make) -> None:
    """Neither one that was far nor one that was due."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        rang: list[int] = []
        for moment in (time.monotonic() + 0.01, time.monotonic() - 1):
            alarm = make(loop, lambda: rang.append(1))
            alarm.set(moment)
            alarm.close()
            alarm.close()
        await asyncio.sleep(0.03)
        return rang

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("make", KINDS)
def test_setting_it_again_replaces_the_moment(make: Make) -> None:
    """One alarm, one moment: ten settings ring once."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        rang: list[int] = []
        alarm = make(loop, lambda: rang.append(1))
        for _ in range(10):
            alarm.set(time.monotonic() - 1)
        await asyncio.sleep(0.01)
        alarm.close()
        return len(rang)

    assert asyncio.run(main()) == 1


@linux
def test_linux_has_the_exact_one() -> None:
    """No system that we know lacks it; elsewhere the loop's own timer is used."""

    async def main() -> str:
        alarm = make_alarm(asyncio.get_running_loop(), lambda: None)
        alarm.close()
        return type(alarm).__name__

    assert asyncio.run(main()) == "FileAlarm"
