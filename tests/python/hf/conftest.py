import importlib.util

import pytest
import torch


def missing_transformers():
    """Why the tests here cannot run, or None. One that is there and cannot be imported is an error."""
    if importlib.util.find_spec("transformers") is None:
        return "Transformers is not installed"
    import transformers

    version = transformers.__version__
    return None if int(version.split(".")[0]) >= 5 else f"Transformers is {version}: expected 5 or later"


class Skipped(pytest.Module):
    def collect(self):
        pytest.skip(missing_transformers(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Skips each file, and counts it, where it could not even be imported."""
    return Skipped.from_parent(parent, path=module_path) if missing_transformers() else None


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Models this small gain nothing from threads, and on a busy machine wait for one another."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_patched():
    """No test leaves patches to the next one."""
    from tigon.transformers import revert_tigon

    revert_tigon()
    yield
    revert_tigon()


@pytest.fixture
def fresh_checks():
    """Forgets what was checked before, and afterwards what this test found."""
    from tigon.transformers import _layout

    checks = (_layout.find, _layout.check_norm, _layout.check_rope, _layout.check_mlp, _layout.check_causal_lm)
    for check in checks:
        check.cache_clear()
    yield
    for check in checks:
        check.cache_clear()
