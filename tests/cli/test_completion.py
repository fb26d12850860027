"""`onbudget --completion`: words completed by the shells that people use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def ask(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    here = str(Path(sys.executable).parent)
    path = {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, env=os.environ | path | environment, capture_output=True, text=True, timeout=60)


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("onbudget se", ["serve"]),
        ("onbudget --com", ["--completion"]),
        ("onbudget serve --max-b", ["--max-batch", "--max-body"]),
        ("onbudget serve --policy d", ["deadline"]),
        ("onbudget serve --p95 20ms --la", ["--lanes", "--late"]),
        ("onbudget load --for", ["--format"]),
        ("onbudget nonsense --", ["--completion", "--help", "--version"]),
    ],
)
def test_bash_completes_verbs_flags_and_choices(words: str, wanted: list[str]) -> None:
    """A bash that has read the script offers what could come next, and says nothing else."""
    script = f"""
        eval "$(onbudget --completion bash)"
        complete -p onbudget > /dev/null || exit 9
        COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _onbudget_completion onbudget
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = ask("bash", "--norc", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == wanted


def test_a_broken_file_of_settings_does_not_spoil_completion(tmp_path: Path) -> None:
    """While a person types nothing is read and nothing is printed but what could come next."""
    (tmp_path / "onbudget.toml").write_text("[serve\n")
    told = ask(
        "bash",
        "-c",
        f"cd {tmp_path} && onbudget",
        _ONBUDGET_COMPLETE="bash_complete",
        COMP_WORDS="onbudget serve --por",
        COMP_CWORD="2",
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "plain,--port\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    """The script names the command and asks it by the variable that the command listens to."""
    done = ask(sys.executable, "-m", "onbudget", "--completion", shell)
    assert done.returncode == 0
    assert f"_ONBUDGET_COMPLETE={shell}_complete" in done.stdout
    assert ask(sys.executable, "-m", "onbudget", "--completion", "csh").returncode == 2


def test_verbs_are_completed_without_being_imported() -> None:
    """Completion is asked at every Tab, so it loads no verb before one is named."""
    done = ask(
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "onbudget",
        _ONBUDGET_COMPLETE="bash_complete",
        COMP_WORDS="onbudget ",
        COMP_CWORD="1",
    )
    assert "plain,serve" in done.stdout
    assert "onbudget.cli.main" in done.stderr
    assert "onbudget.cli.serve" not in done.stderr
    assert "numpy" not in done.stderr
