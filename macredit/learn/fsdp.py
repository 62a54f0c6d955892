"""A learner that outgrows a GPU: every rank holds a shard of weights, gradients and moments (torch's fully_shard).

The loop stays one process. It talks to ranks, processes of their own that all do the same call at the same time: packs
of rows are dealt out among them, everything else they do alike. What they answer is what one process would, and their
state is whole, so that checkpoints are interchangeable. After Zhao et al. 2023 (FSDP, arXiv 2304.11277).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

from macredit.errors import OutsideError, UserError
from macredit.learn.batch import TrainRow
from macredit.learn.learner import LearnerConfig, State
from macredit.learn.resources import layers
from macredit.learn.torch_policy import TorchPolicy
from macredit.learn.vocabulary import Scored


class Shard(TorchPolicy):
    """One rank's part of a policy: until it is prepared the whole of it, on the CPU."""

    _sharded = False

    def prepare(self, config: LearnerConfig) -> None:
        """Keep a shard of everything from now on; then as in one process.

        Raises:
            UserError: the config asks for what ranks do not do.
        """
        if config.compile or config.offload:
            raise UserError(
                f"policy {self.name!r} was given shards, and its learner compile = {config.compile} and offload = "
                f"{config.offload}; expected both false; give more shards instead"
            )
        if not self._sharded:
            for p in self._parameters.values() if config.precision != "float32" else ():
                p.data = p.data.float()
            sharded(self.module)
            self._parameters = {key: p for key, p in self.module.named_parameters() if key in self._parameters}
            original, self._sharded = self._original, True
            self._original = lambda: sharded(original())
            self.__dict__.pop("_scorer", None)  # it knows where the weights were
        super().prepare(config)

    def facts(self) -> tuple[str, Mapping[str, Any]]:
        """Version and sampling, for those who only have the ranks' answers."""
        return self.version, self.sampling

    def rest(self) -> None:
        """Hold nothing but shards: after a pass without gradient, what is around the layers is still gathered."""
        if self._sharded:
            self.module.reshard()

    def load(self, state: State) -> None:
        """Keep this rank's shard of a whole state."""
        super().load(state._replace(tensors={name: self._part(name, array) for name, array in state.tensors.items()}))

    def _part(self, name: str, array: Any) -> Any:
        whole, like = torch.as_tensor(array), self._parameters[name.split("/", 1)[1]]
        if whole.shape != like.shape:
            return whole  # a count of steps
        return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements)  # type: ignore[attr-defined]

    def _scored(self, module: Any, batches: Sequence[Sequence[TrainRow]]) -> Iterator[Scored]:
        """Each pack's scores, one pack a rank at a time; those of other ranks are numbers.

        Forward and backward passes gather weights and scatter gradients, so all ranks must make equally many: one that
        is left without a pack computes the last again, with gradient 0. Ranks' gradients are averaged; to be summed,
        as packs are, each is multiplied by their number.
        """
        rank, ranks = dist.get_rank(), dist.get_world_size()
        for start in range(0, len(batches), ranks):
            dealt = batches[start : start + ranks]
            (logp, entropy), *_ = super()._scored(module, [dealt[min(rank, len(dealt) - 1)]])
            if logp.requires_grad:
                logp.register_hook(lambda gradient: gradient * ranks)  # type: ignore[no-untyped-call]
            everyone: list[Any] = [None] * ranks
            dist.all_gather_object(everyone, (logp.detach().cpu(), entropy.detach().cpu()))
            if rank >= len(dealt) and logp.requires_grad:
                (0.0 * logp).sum().backward()  # type: ignore[no-untyped-call]
            for n, (values, entropies) in enumerate(everyone[: len(dealt)]):
                yield (logp, entropy) if n == rank else (values.requires_grad_(logp.requires_grad), entropies)


def sharded(module: Any) -> Any:
    """A module whose layers, and whatever is around them, are gathered while they compute."""
    device = torch.device("cuda", dist.get_rank()) if dist.get_backend() == "nccl" else torch.device("cpu")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for part in (*layers(module), module):
        fully_shard(part, mesh=mesh)
    with torch.no_grad():  # what gathers is made by the first pass, which must not be one of inference mode
        module(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device))
    module.reshard()
    return module


class Ranks:
    """Processes that hold one policy together.

    Args:
        name: of the policy, for errors.
        make: makes a rank's part; called in each process, so it must be picklable.
        ranks: how many.
        cuda: one GPU a rank; False: the CPU.

    Raises:
        UserError: fewer than two ranks, or more than there are GPUs.
    """

    def __init__(self, name: str, make: Callable[[], Shard], ranks: int, cuda: bool) -> None:
        if type(ranks) is not int or ranks < 2 or (cuda and ranks > torch.cuda.device_count()):
            most = f"to {torch.cuda.device_count()}, the GPUs there are" if cuda else "or more"
            raise UserError(
                f"policy {name!r} was given shards = {ranks!r}; expected 2 {most}; leave it out for one process"
            )
        self._name = name
        self._folder = tempfile.TemporaryDirectory(prefix="macredit-ranks-")
        context = multiprocessing.get_context("spawn")
        meeting = Path(self._folder.name) / "meeting"
        pairs = [context.Pipe() for _ in range(ranks)]
        self._pipes: list[Connection] = [here for here, _ in pairs]
        self._processes = [
            context.Process(
                target=_serve, args=(there, make, rank, ranks, cuda, str(meeting)), name=f"rank {rank}", daemon=True
            )
            for rank, (_, there) in enumerate(pairs)
        ]
        for process, (_, there) in zip(self._processes, pairs, strict=True):
            process.start()
            there.close()  # the rank has its own: when it dies, this end is told
        self._answer()

    def __call__(self, method: str, *args: Any) -> Any:
        """What the first rank's policy answers to a call that all of them make.

        Raises:
            OutsideError: a rank failed or died; none is left.
            UserError: as the policy does.
        """
        if self._pipes[0].closed:
            raise OutsideError(f"policy {self._name!r} has lost its ranks; begin again with --resume")
        for pipe in self._pipes:
            with contextlib.suppress(ConnectionError):  # it died; that it has no answer says so
                pipe.send((method, args))
        return self._answer()

    def _answer(self) -> Any:
        answers: dict[Any, Any] = {}
        while len(answers) < len(self._pipes):
            for pipe in wait([one for one in self._pipes if one not in answers]):
                answers[pipe] = self._received(pipe)
                if isinstance(answers[pipe], Exception):  # the others wait for it in vain
                    self.close()
                    raise answers[pipe]
        return answers[self._pipes[0]]

    def _received(self, pipe: Any) -> Any:
        """A rank's answer, or why there is none; a rank whose fellow died fails too, and is not to blame."""
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionError):
            process = self._processes[self._pipes.index(pipe)]
            process.join(10)
            answer = OutsideError(f"{process.name} of policy {self._name!r} ended unasked; begin again with --resume")
        died = [process.name for process in self._processes if process.exitcode]
        if isinstance(answer, OutsideError) and died:
            return OutsideError(f"{died[0]} of policy {self._name!r} died; begin again with --resume")
        return answer

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()


def _serve(pipe: Connection, make: Callable[[], Shard], rank: int, ranks: int, cuda: bool, meeting: str) -> None:
    """A rank's life: make its part, then answer calls until one fails or nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the loop to answer
    torch.set_autocast_cache_enabled(False)  # it would keep a copy of every gathered weight
    if cuda:
        torch.cuda.set_device(rank)
    try:
        dist.init_process_group(
            "nccl" if cuda else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks
        )
        policy = make()
        pipe.send(None)
        while True:
            method, arguments = pipe.recv()
            answer = getattr(policy, method)(*arguments)
            policy.rest()
            pipe.send(answer if rank == 0 else None)
    except (EOFError, ConnectionError):
        dist.destroy_process_group()
    except UserError as error:
        pipe.send(error)
    except Exception:  # noqa: BLE001 (the loop's process raises it)
        pipe.send(OutsideError(f"rank {rank} failed:\n{traceback.format_exc()}"))
