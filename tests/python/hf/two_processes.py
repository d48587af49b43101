"""Runs a function in two processes that can reach one another with gloo; as a program, one that torchrun starts."""

import os
import runpy
import socket
import sys

import torch
import torch.multiprocessing

PROCESSES = 2


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def leave():
    """Ends the process without the interpreter's own end: where a thread of gloo's still holds a tensor then, it is ended in
    the tensor's destructor, and the process aborts ("terminate called without an active exception")."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _start(rank, port, function, arguments):
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": PROCESSES, "LOCAL_WORLD_SIZE": PROCESSES}
    os.environ.update({key: str(value) for key, value in {**names, "RANK": rank, "LOCAL_RANK": rank}.items()})
    torch.set_num_threads(1)
    function(rank, *arguments)
    leave()


def in_two_processes(function, *arguments):
    """Calls function(rank, *arguments) in each; raises what either of them raised."""
    torch.multiprocessing.spawn(_start, (_free_port(), function, arguments), nprocs=PROCESSES, join=True)


if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__main__")
    leave()
