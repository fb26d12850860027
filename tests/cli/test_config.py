"""`onbudget.toml` and `--print-config`: who wins, what is refused and in which words, and that it can be fed back."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.cli import config
from onbudget.cli.config import KINDS, as_text, as_toml, line_of
from onbudget.cli.main import VERBS, cli, main
from onbudget.cli.options import settings
from onbudget.core.plan import Candidate, Configuration, Plan
from onbudget.engine.children import Server
from onbudget.engine.machine import Machine
from onbudget.engine.plans import write_plan

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("serve", "--port", "1")` in an empty folder → (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onbudget", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, told.out, told.err

    return go


def write(text: str, name: str = "onbudget.toml") -> None:
    Path(name).write_text(text, encoding="utf-8")


def lines(printed: str) -> dict[str, str]:
    """key → the rest of its line."""
    return dict(line.split(" = ", 1) for line in printed.splitlines() if " = " in line)


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting is printed with the place that it came from."""
    write('[serve]\nport = 1\nlanes = 2\nthreads = 3\n\n[load]\nrate = "5/s"\n')
    monkeypatch.setenv("ONBUDGET_LANES", "4")
    monkeypatch.setenv("ONBUDGET_PORT", "5")
    code, out, err = run("serve", "--print-config", "--port", "6")
    told = lines(out)
    assert (code, err) == (0, "")
    assert told["port"] == "6  # flag"
    assert told["lanes"] == "4  # env ONBUDGET_LANES"
    assert told["threads"] == "3  # onbudget.toml:4"
    assert told["max_batch"] == "16  # default"
    assert "# p95 is not set" in out


def test_a_file_wins_over_a_plan(run: Run, tmp_path: Path) -> None:
    """A plan fills what nobody else has said, wherever its name stands."""
    chosen = Configuration(lanes=2, threads=1, max_batch=4, policy="greedy")
    machine = Machine.read().facts()
    plan = Plan("m.onnx", "0" * 64, machine, 0.25, None, None, chosen, (Candidate(chosen, 1.0),), (), "2026", 1.0, "x")
    write_plan(plan, tmp_path / "plan.json")
    write("[serve]\nlanes = 1\n")
    for arguments in (("--plan", "plan.json"), ("--plan", "plan.json", "--config", "onbudget.toml")):
        told = lines(run("serve", "--print-config", *arguments)[1])
        assert told["lanes"] == "1  # onbudget.toml:2"
        assert (told["max_batch"], told["p95"]) == ("4  # plan", '"0.25s"  # plan')
        assert told["plan"] == '"plan.json"  # flag'
    write('[serve]\nplan = "plan.json"\nlanes = 1\n')
    told = lines(run("serve", "--print-config")[1])
    assert (told["lanes"], told["max_batch"]) == ("1  # onbudget.toml:3", "4  # plan")


def configured() -> list[str]:
    """The verbs that have settings."""
    commands = {verb: cli.get_command(click.Context(cli), verb) for verb in VERBS}
    return [verb for verb, command in commands.items() if command is not None and settings(command)]


@pytest.mark.parametrize("verb", configured())
def test_what_is_printed_can_be_fed_back(run: Run, verb: str) -> None:
    """The printed TOML settles every option of every verb to the same value, and names the file as its source."""
    code, out, _ = run(verb, "--print-config")
    assert code == 0
    settled = tomllib.loads(out)
    write(out, "again.toml")
    code, again, err = run(verb, "--print-config", "--config", "again.toml")
    assert code == 0, err
    assert tomllib.loads(again) == settled
    assert set(settled) == {verb}
    assert all("  # again.toml:" in rest for rest in lines(again).values())


def test_every_kind_of_value_comes_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, durations, lists and switches given as flags settle to the same when the printed file is read instead."""
    flags = ("--p95", "12.5ms", "--accept", "png", "--max-body", "4KiB", "--provider", 'a"\\b', "--port", "0")
    first = tomllib.loads(run("serve", "--print-config", *flags)[1])
    expected = {"p95": "12.5ms", "accept": "png", "max_body": "4KiB", "provider": 'a"\\b', "port": 0}
    assert first["serve"] | expected == first["serve"]
    out = run("bundle", "--print-config", "--no-cost")[1]
    assert tomllib.loads(out)["bundle"]["cost"] is False
    write(out, "again.toml")
    assert lines(run("bundle", "--config", "again.toml", "--print-config")[1])["cost"].startswith("false")
    assert lines(run("bundle", "--config", "again.toml", "--print-config", "--cost")[1])["cost"] == "true  # flag"
    monkeypatch.setenv("ONBUDGET_COST", "0")
    assert lines(run("bundle", "--print-config")[1])["cost"] == "false  # env ONBUDGET_COST"


def test_a_file_is_read_when_the_verb_runs(run: Run) -> None:
    """Not only when it is printed: a budget that the file gives is judged by, and a wrong model is still a sentence."""
    write('[serve]\npolicy = "deadline"\n')
    code, _, err = run("serve", "none.onnx", "--port", "0")
    assert (code, "--policy deadline holds a budget" in err) == (2, True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[serve]\n\nprot = 1\n", "onbudget.toml:3: no such key in [serve]: prot. Did you mean port?"),
        ("[serve]\nmax-batch = 1\n", "onbudget.toml:2: no such key in [serve]: max-batch. Did you mean max_batch?"),
        ("serve = {xyz = 1}\n", "onbudget.toml:1: no such key in [serve]: xyz. There are host, port,"),
        ("[serv]\nport = 1\n", "onbudget.toml:1: no such table: [serv]. Did you mean [serve]?"),
        ("# mine\nport = 1\n", "onbudget.toml:2: port stands outside of a table; put it under [serve]"),
        ("hello = 1\n", "onbudget.toml:1: hello stands outside of a table; the tables are [demo], "),
        (
            '[serve]\nhost = "a"\nport = true\n',
            "onbudget.toml:3: port: it must be a number, or text in quotes, not true",
        ),
        ("[serve]\nhost = 1\n", "onbudget.toml:2: host: it must be text in quotes, not a number (1)"),
        ("[serve]\nport = [\n1]\n", "onbudget.toml:2: port: it must be a number, or text in quotes, not a list"),
        ("[serve]\np95 = 20\n", "onbudget.toml:2: p95: '20' is not a duration: a unit is needed"),
        ("[serve]\nlanes = 99\n", "onbudget.toml:2: lanes: '99' must be a whole number from 0 to 64"),
        ('[serve]\npolicy = "fast"\n', "onbudget.toml:2: policy: 'fast' is not one of 'auto', 'deadline'"),
        ("[serve]\nport = \n", "onbudget.toml is not TOML: Invalid value (at line 2, column 8)"),
        ("[serve]\nport = 1\nport = 2\n", "onbudget.toml is not TOML: Cannot overwrite a value (at line 3"),
        ("#" * 40_000, "onbudget.toml is larger than 32 KiB"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(run: Run, text: str, wanted: str) -> None:
    """Exit code 2, with file, line, key, and what would be right; nothing on stdout."""
    write(text)
    code, out, err = run("serve", "--print-config")
    assert (code, out) == (2, "")
    assert wanted in err
    assert "Traceback" not in err


def test_a_named_file_must_be_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """--config and ONBUDGET_CONFIG name a file; only onbudget.toml may be missing."""
    assert run("serve", "--print-config")[0] == 0
    code, _, err = run("serve", "--config", "prod.toml")
    assert (code, "prod.toml cannot be read: No such file" in err) == (2, True)
    Path("bad.toml").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("ONBUDGET_CONFIG", "bad.toml")
    code, _, err = run("serve", "--print-config")
    assert (code, "bad.toml is not TOML: it is not UTF-8" in err) == (2, True)


def test_another_verbs_mistake_does_not_stop_this_one(run: Run) -> None:
    """Only the verb's own table is looked into, since the others' options are not loaded."""
    write("[load]\nnonsense = 1\n[serve]\nport = 7\n")
    assert lines(run("serve", "--print-config")[1])["port"] == "7  # onbudget.toml:4"
    assert run("load", "--print-config")[0] == 2


def test_a_server_that_we_start_ourselves_is_told_by_flags_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement is of the server that was asked for: neither a file nor the environment makes another of it."""
    monkeypatch.chdir(tmp_path)
    write("[serve]\nlanes = 3\n")
    monkeypatch.setenv("ONBUDGET_THREADS", "3")
    monkeypatch.setenv("ONBUDGET_LOG_FORMAT", "json")
    with Server("it", ("onbudget", "serve", "--max-batch", "3", "--print-config")) as server:
        assert server.wait() == 0
        told = lines(server.said)
    assert told.pop("max_batch") == "3  # flag"
    assert all(rest.endswith("# default") for rest in told.values())


def test_secrets_are_not_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header may carry a key: its value is in no line, whether it came by flag, environment or file."""
    monkeypatch.setenv("ONBUDGET_HEADER", "X-A: hidden\nX-B: hidden too")
    assert "# header is secret  # env ONBUDGET_HEADER" in run("load", "--print-config")[1]
    out = run("load", "--print-config", "--header", "Authorization: hidden")[1]
    assert "# header is secret  # flag" in out
    monkeypatch.delenv("ONBUDGET_HEADER")
    write('[load]\nheader = ["X-Key: hidden"]\n')
    out += run("load", "--print-config")[1]
    assert "# header is secret  # onbudget.toml:2" in out
    assert "hidden" not in out


def test_headers_in_the_environment_stand_one_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value with a space is one value, so that a wrong one is named as a whole."""
    monkeypatch.setenv("ONBUDGET_HEADER", "X-A: one two\nnonsense here")
    code, _, err = run("load", "--print-config")
    assert (code, "'nonsense here' is not a header" in err) == (2, True)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_written_as_toml_that_reads_the_same(text: str) -> None:
    """Quotes, line ends and control characters too."""
    assert tomllib.loads(f"x = {as_toml(text, 'text')}\ny = {as_toml([text], 'list')}") == {"x": text, "y": [text]}


VALUES = [True, 3, 0.5, "text", ["a", "b"], [1, 2], {"a": 1}, [[1]], []]
TAKES: dict[str, list[tuple[Any, Any]]] = {
    "bool": [(True, True)],
    "text": [("text", "text")],
    "whole": [(3, "3")],
    "number": [(3, "3"), (0.5, "0.5")],
    "any": [(3, "3"), (0.5, "0.5"), ("text", "text")],
    "list": [(["a", "b"], ["a", "b"]), ([], [])],
    "commas": [(3, "3"), (0.5, "0.5"), ("text", "text"), (["a", "b"], "a,b"), ([1, 2], "1,2"), ([], "")],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_takes_what_it_says_and_nothing_else(kind: str) -> None:
    """What it takes is handed on as the text that a person would have typed; the rest is refused in words."""
    for value in VALUES:
        taken = [text for one, text in TAKES[kind] if type(one) is type(value) and one == value]
        if taken:
            assert as_text(value, kind) == taken[0]
        else:
            with pytest.raises(ValueError, match=f"it must be {KINDS[kind]}, not "):
                as_text(value, kind)


def test_lines_are_found_behind_values_of_several_lines() -> None:
    """A value begins where its key stands; text that looks like the key is not it."""
    text = '[a]\ns = """\nk = 1\n"""\n\n[b.c]\n# k\nk = [\n  1,\n]\n"q" = 2\n'
    assert line_of(text, ("b", "c", "k")) == 8
    assert line_of(text, ("b", "c", "q")) == 11
    assert line_of(text, ("a", "s")) == 2
    assert line_of(text, ("a",)) == 1
    assert config.LARGEST == 32 * 1024
