"""Runs a function in two processes that can reach one another with gloo."""

import os
import socket

import torch
import torch.multiprocessing

PROCESSES = 2


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(rank, port, function, arguments):
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": PROCESSES, "LOCAL_WORLD_SIZE": PROCESSES}
    os.environ.update({key: str(value) for key, value in {**names, "RANK": rank, "LOCAL_RANK": rank}.items()})
    torch.set_num_threads(1)
    function(rank, *arguments)


def in_two_processes(function, *arguments):
    """Calls function(rank, *arguments) in each; raises what either of them raised."""
    torch.multiprocessing.spawn(_start, (_free_port(), function, arguments), nprocs=PROCESSES, join=True)
