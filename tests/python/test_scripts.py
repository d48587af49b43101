"""The scripts of the repository, as somebody meets them who has just cloned it."""

import os
import shutil
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


PYTHON_WITHOUT_TORCH = """#!/bin/sh
case "$*" in
  *"import torch"*) exit 1 ;;
  *venv*)
    mkdir -p build/python/bin
    printf '#!/bin/sh\\necho "$@" >>fetched\\n' >build/python/bin/pip
    chmod +x build/python/bin/pip ;;
esac
"""


def test_building_the_wheel_fetches_neither_torch_nor_what_only_tests_use(tmp_path: Path) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    (tmp_path / "python3").write_text(PYTHON_WITHOUT_TORCH)
    (tmp_path / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for purpose in ["build", "test", "test", "build"]:
        command = f"source {tmp_path}/scripts/common.sh; install_python_environment {purpose}"
        subprocess.run(["bash", "-c", command], env=environment, check=True, capture_output=True)
    to_build, to_test = (tmp_path / "fetched").read_text().splitlines()  # and the last two had all they need
    assert "scikit-build-core" in to_build
    assert "torch" not in to_build
    assert "transformers" not in to_build
    assert "torch" in to_test
    assert "scikit-build-core" in to_test


@pytest.mark.parametrize("python_is_there", [True, False])
def test_a_build_goes_on_when_the_python_of_the_wheel_is_gone(tmp_path: Path, python_is_there: bool) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    (tmp_path / "cmake").write_text("#!/bin/sh\necho $* >>called\n")
    (tmp_path / "cmake").chmod(0o755)
    (tmp_path / "build" / "release").mkdir(parents=True)
    (tmp_path / "build" / "release" / "build.ninja").touch()
    python = tmp_path / "build" / "python" / "bin" / "python3"
    (tmp_path / "build" / "release" / "CMakeCache.txt").write_text(f"Python_EXECUTABLE:PATH={python}\n")
    if python_is_there:
        python.parent.mkdir(parents=True)
        python.touch()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = f"source {tmp_path}/scripts/common.sh; build_preset release tigon_app"
    subprocess.run(["bash", "-c", command], env=environment, check=True, capture_output=True)
    build = "--build --preset release --target tigon_app"
    configure = [] if python_is_there else ["--preset release -DTIGON_PYTHON=OFF"]
    assert (tmp_path / "called").read_text().splitlines() == [*configure, build]
