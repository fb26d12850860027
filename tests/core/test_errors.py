"""The tree of errors, as drawn, is the tree of classes."""

from __future__ import annotations

import re

from onbudget.core import errors

_LINE = re.compile(
    r"^ {4}(?P<indent>(?:[│ ] {3})*)(?:[├└]── )?(?P<name>[A-Z]\w+) +(?P<number>\d+)?(?: +)?(?P<words>\S.*)$"
)


def _drawn() -> dict[str, tuple[str, str, str]]:
    """Name → (parent's name, number or "", words), read from the docstring."""
    above: list[str] = []
    found: dict[str, tuple[str, str, str]] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = _LINE.match(line)
        if not match or ("──" not in line and match["name"] != "OnbudgetError"):
            continue
        depth = 0 if "──" not in line else len(match["indent"]) // 4 + 1
        above[depth:] = [match["name"]]
        found[match["name"]] = (above[depth - 1] if depth else "Exception", match["number"] or "", match["words"])
    return found


def _classes(top: type[errors.OnbudgetError] = errors.OnbudgetError) -> list[type[errors.OnbudgetError]]:
    return [top, *(one for sub in top.__subclasses__() if sub.__module__ == errors.__name__ for one in _classes(sub))]


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    """Names, order and parents in the docstring are those of the classes."""
    assert [(name, parent) for name, (parent, _, _) in _drawn().items()] == [
        (one.__name__, one.__bases__[0].__name__) for one in _classes()
    ]


def test_the_drawn_numbers_are_the_statuses_and_exit_codes() -> None:
    """A request's error shows its HTTP status, another its exit code where that is not 1."""
    drawn = _drawn()
    for one in _classes()[1:]:
        if one is errors.RequestError:
            continue
        number = one.status if issubclass(one, errors.RequestError) else one.exit_code
        assert drawn[one.__name__][1] == ("" if number == 1 else str(number)), one


def test_every_code_is_used_once() -> None:
    """A code names one class, so that metrics and bodies can be told apart."""
    codes = [one.code for one in _classes() if one is not errors.RequestError]
    assert len(codes) == len(set(codes))
