"""Every Python snippet of the documentation runs; the snippets of a page one after the other."""

import re
from pathlib import Path

import pytest
import torch.distributed as dist

pytestmark = pytest.mark.filterwarnings("ignore:.pin_memory. argument:UserWarning")  # of Trainer on a CPU

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "python").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_snippets_run(page, monkeypatch, tmp_path):
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert snippets
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    try:
        for snippet in snippets:
            exec(compile(snippet, str(page), "exec"), names)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
