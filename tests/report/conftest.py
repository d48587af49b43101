import os
import subprocess
from pathlib import Path

import pytest
from browser import Browser
from study_fixture import make_study


@pytest.fixture(scope="session")
def tigon():
    """Runs the program that TIGON names (default: build/tigon) and returns what it printed."""
    root = Path(__file__).resolve().parents[2]
    program = os.environ.get("TIGON", str(root / "build" / "tigon"))

    def run(*arguments, check=True):
        result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
        if check:
            assert result.returncode == 0, result.stdout + result.stderr
        return result

    return run


@pytest.fixture(scope="session")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A study with everything in it; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    make_study(folder)
    return folder
