"""Debian's Chromium, without a network: what it complains of in a page, and what the page becomes."""

from __future__ import annotations

import subprocess
from pathlib import Path


def look(page: Path, *flags: str) -> tuple[str, str]:
    """(the page's elements once its scripts have run, the console's lines)."""
    profile = page.parent / f"profile-{page.stem}"
    usual = ["--headless", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9", f"--user-data-dir={profile}"]
    command = ["chromium", *usual, *flags, "--enable-logging=stderr", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
