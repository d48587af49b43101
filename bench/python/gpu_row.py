"""The one way in which these programs time a GPU."""

import torch


def row_milliseconds(step, steps):
    """Of one step, in a row of them that nothing waits between, as in training: the longer of the host's and the GPU's
    time."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / steps
