"""The scripts of the repository, as somebody meets them who has just cloned it."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize("name", ["build", "demo", "fuzz", "lint", "test"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_installs_and_builds_nothing(name: str, flag: str, tmp_path: Path) -> None:
    for tool in ["dpkg-query", "apt-get", "cmake"]:
        (tmp_path / tool).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run([SCRIPTS / name, flag], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    comment = (SCRIPTS / name).read_text().splitlines()[1:]
    assert run.stdout.splitlines() == [line[2:] for line in comment[: len(run.stdout.splitlines())]]
    assert not comment[len(run.stdout.splitlines())].startswith("#"), "not the whole comment"
