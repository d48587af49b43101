import pytest

pytest.importorskip("transformers", minversion="5.0")


@pytest.fixture(autouse=True)
def nothing_patched():
    """No test leaves patches to the next one."""
    from tigon.transformers import revert_tigon

    revert_tigon()
    yield
    revert_tigon()
