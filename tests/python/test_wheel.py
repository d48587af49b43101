"""The installed wheel has all it needs: of the libraries it was built with, none is taken from the system."""

from importlib import metadata
from pathlib import Path

import tigon
import torch


def test_the_wheel_is_for_every_linux() -> None:
    wheel = metadata.distribution("tigon").read_text("WHEEL")
    assert wheel is not None
    assert "manylinux" in wheel, "installed from the source tree; ./scripts/test python tests the wheel"


def test_its_libraries_are_its_own() -> None:
    tigon.ops.rms_norm(torch.ones(2, 8), torch.ones(8))
    folder = Path(tigon.__file__).parent.parent / "tigon.libs"
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    for name in ("libdnnl", "libfmt", "libhwy"):
        found = [path for path in loaded if Path(path).name.startswith(name)]
        assert found, name
        assert all(Path(path).parent == folder for path in found), found
