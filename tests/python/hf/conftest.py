import pytest
import torch

pytest.importorskip("transformers", minversion="5.0")


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
