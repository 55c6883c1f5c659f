"""Joining the processes that torchrun started for one run, and leaving them together, or when one has failed."""

import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch

from cml.errors import UserError
from cml.launch import Launch, launch
from cml.processes.device import pick_device
from cml.processes.ranks import ConnectionLostError, Ranks

JOINING = timedelta(minutes=5)  # how long the processes wait for each other to start
LATEST = timedelta(minutes=30)  # how far a process may lag behind the others, as when it reads a large data set
GRACE = 3.0  # seconds that others wait after one has died: torchrun takes the first to end for the cause
_sessions = 0  # runs that this process has joined


@contextlib.contextmanager
def init_processes(device: str) -> Iterator[Ranks]:
    """Join the other processes of the run, if torchrun started several; leave them together at the end.

    torchrun ends all processes if one ends; without it, as under Slurm, a broken connection ends the others. A process
    that hangs is noticed by torch's own time limit, ``LATEST``.
    """
    if (how := launch()).size == 1:
        yield Ranks(device=pick_device(device))
        return
    import torch.distributed as dist
    import torch.distributed.nn.functional  # noqa: F401 - after init_process_group its defaults keep the group forever
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    place = own_device(device, how)
    if dist.is_initialized():
        raise UserError("cml joins the processes of torchrun itself: do not call init_process_group.")
    global _sessions
    _sessions += 1
    store, rank, size = next(rendezvous("env://", timeout=JOINING))
    store = PrefixStore(f"cml/{_sessions}", store)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo",
        store=PrefixStore("group", store),
        rank=rank,
        world_size=size,
        timeout=LATEST,
        device_id=place if place.type == "cuda" else None,
    )
    ranks = Ranks(rank, size, place)
    ranks.barrier()
    has_failed = False
    try:
        yield ranks
        ranks.barrier()
    except ConnectionLostError as error:
        text = _explain_loss(store, error)  # at once, while the process that holds the store waits for it
        with contextlib.suppress(RuntimeError):
            store.add("heard", 1)
        time.sleep(GRACE)
        if text:
            print(f"error: {text}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    except SystemExit:
        raise
    except BaseException as error:
        has_failed = not isinstance(error, KeyboardInterrupt)
        code = 130 if isinstance(error, KeyboardInterrupt) else 2 if isinstance(error, UserError) else 1
        first_to_tell = _report_failure(store, rank, error)
        if not (ranks.first if code == 130 else first_to_tell):  # all are interrupted at once, and rank 0 says it
            raise SystemExit(code) from None
        if isinstance(error, UserError | OSError | FloatingPointError) and not how.prints_errors:
            print(f"error: {error}", file=sys.stderr, flush=True)  # the command line leaves that to the machine's first
            raise SystemExit(code) from None
        raise
    finally:
        if place.type == "cpu":  # a thread of gloo that releases a tensor while Python exits aborts the process
            dist.destroy_process_group()
        if has_failed and rank == 0:
            _let_others_hear(store, size - 1)
    if place.type == "cuda":  # not after a failure, when nccl may wait for the others
        dist.destroy_process_group()


def _report_failure(store: Any, rank: int, error: BaseException) -> bool:  # noqa: ANN401 - torch's
    """Tell the others why this process stops; False if another one has already failed."""
    with contextlib.suppress(RuntimeError):  # the process that held the store has ended: only this error can be told
        if store.add("failures", 1) > 1:
            return False
        host = socket.gethostname()
        store.set("failure", f"{host}\nrank {rank} on {host} has failed. {type(error).__name__}: {error}")
    return True


def _let_others_hear(store: Any, others: int) -> None:  # noqa: ANN401 - torch's
    """Wait, as the process that holds the store, until the others have read there why it ends; not for long."""
    latest = time.monotonic() + GRACE / 2  # the others end after GRACE, so that torchrun sees this one end first
    with contextlib.suppress(RuntimeError):
        while time.monotonic() < latest and store.add("heard", 0) < others:
            time.sleep(0.02)


def _explain_loss(store: Any, error: ConnectionLostError) -> str:  # noqa: ANN401 - torch's
    """Say what became of the other processes; "" where a process of this machine has said it."""
    text = f"The processes of the run have lost each other ({error}). Continue from the last checkpoint with --resume."
    own = socket.gethostname()
    with contextlib.suppress(RuntimeError):  # the process that held the store has ended
        if store.check(["failure"]):
            host, _, reason = store.get("failure").decode().partition("\n")
            text = "" if host == own else f"Stopped, because {reason}"
        return text if store.add(f"told/{own}", 1) == 1 else ""
    return text


def own_device(device: str, how: Launch) -> torch.device:
    """Pick the device of one of several processes: the CPU, or a GPU of its own."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if device not in ("auto", "cuda"):
        raise UserError(f"Each of several processes takes its own device: set it to auto, cpu or cuda. Got {device}.")
    pick_device("cuda")
    if how.local_size > torch.cuda.device_count():
        raise UserError(
            f"Each process takes a GPU of its own: there are {torch.cuda.device_count()}. Got --nproc-per-node "
            f"{how.local_size}; lower it, or set --device cpu."
        )
    place = torch.device("cuda", how.local_rank)
    torch.cuda.set_device(place)
    return place
