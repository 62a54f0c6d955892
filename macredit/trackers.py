"""Trackers: where else a run's numbers go while it trains. A resumed run goes on with the trackers it had."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from macredit.episode import write_atomically
from macredit.errors import OutsideError, missing_extra, unknown
from macredit.learn.saved import check_fields, read_object

PROJECT = "macredit"
"""Project, or experiment, of every run, unless the tracker's own environment variable names another."""
RECORD = "trackers.json"
"""In a run's folder: tracker → the id to go on with."""
_MLFLOW_LONGEST = 6000
"""MLflow's longest parameter."""


class Tracker(Protocol):
    """Anything that takes numbers by step."""

    id: str
    """What a resumed run opens it with; empty: the run's folder says enough."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Take numbers by flat name (``credit/solver``); one step may bring several times, with other names."""
        ...

    def close(self, failed: bool) -> None:
        """Write out what is left; the run ended, by an error or not."""
        ...


Opener = Callable[[Path, Mapping[str, Any], str], Tracker]
"""(the run's folder, its configuration, the id to go on with or ``""``) → its tracker."""


class TensorBoard:
    """TensorBoard's event files, in ``tensorboard/`` of the run's folder."""

    id = ""

    def __init__(self, run: Path, config: Mapping[str, Any], id: str) -> None:
        from tensorboard.summary import Writer

        self._writer = Writer(str(run / "tensorboard"))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """One scalar a name."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        """Flush and close the file."""
        self._writer.close()


class WandB:
    """Weights & Biases, with the login and ``WANDB_…`` variables of its own.

    ``WANDB_MODE=offline`` keeps everything in ``wandb/`` of the run's folder; the parts of a resumed run share an id
    there, and ``wandb sync`` puts them together.
    """

    def __init__(self, run: Path, config: Mapping[str, Any], id: str) -> None:
        import wandb

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        offline = os.environ.get("WANDB_MODE") in ("offline", "dryrun")
        try:
            self._run = wandb.init(
                project=project, name=run.resolve().name, id=id or None, config=dict(config), dir=str(run),
                resume=None if offline else "allow",
            )  # fmt: skip
        except wandb.Error as error:
            raise OutsideError(f"Weights & Biases did not open ({error}); WANDB_MODE=offline needs no server") from None
        self.id: str = self._run.id

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """One row a step."""
        self._run.log(dict(numbers), step=step)

    def close(self, failed: bool) -> None:
        """Finish the run, as failed or not."""
        self._run.finish(exit_code=int(failed))


class MLflow:
    """MLflow: the server that ``MLFLOW_TRACKING_URI`` names, else plain files in ``mlflow/`` of the run's folder.

    The configuration is kept whole as the artifact ``config.json``, and its values as parameters. ``mlflow ui
    --backend-store-uri FOLDER/mlflow`` of the whole package shows the files.
    """

    def __init__(self, run: Path, config: Mapping[str, Any], id: str) -> None:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        self._wrong = MlflowException
        server = os.environ.get("MLFLOW_TRACKING_URI")
        if not server:  # MLflow asks for consent, since it no longer develops its file store
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        with self._named():
            self._client = MlflowClient(server or (run / "mlflow").resolve().as_uri())
            self.id: str = id or self._begin(run.resolve().name, config)
            self._client.update_run(self.id, status="RUNNING")

    def _begin(self, name: str, config: Mapping[str, Any]) -> str:
        """A new run with its configuration."""
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(title)
        experiment = found.experiment_id if found else self._client.create_experiment(title)
        id: str = self._client.create_run(experiment, run_name=name).info.run_id
        for key, value in leaves(config):
            if len(str(value)) <= _MLFLOW_LONGEST:
                self._client.log_param(id, _mlflow_name(key), value)
        self._client.log_dict(id, dict(config), "config.json")
        return id

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """All numbers of one call together."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        with self._named():
            self._client.log_batch(
                self.id, [Metric(_mlflow_name(name), value, now, step) for name, value in numbers.items()]
            )

    def close(self, failed: bool) -> None:
        """End the run as FINISHED or FAILED."""
        with self._named():
            self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """MLflow's errors as errors from outside."""
        try:
            yield
        except self._wrong as error:
            raise OutsideError(f"MLflow failed: {error}") from None


def _mlflow_name(name: str) -> str:
    """A name that MLflow takes: what it forbids is written as its code, ``*`` as ``_2a_``."""
    return re.sub(r"[^\w\-. :/]", lambda found: f"_{ord(found[0]):x}_", name, flags=re.ASCII)


class Trackio:
    """trackio: a local database, in ``TRACKIO_DIR`` or trackio's own folder; ``trackio show`` serves its pages."""

    def __init__(self, run: Path, config: Mapping[str, Any], id: str) -> None:
        import trackio

        self.id = id or f"{run.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}"
        self._run = trackio.init(
            project=PROJECT, name=self.id, config=dict(config), resume="allow", embed=False, auto_log_cpu=False
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """One row a call."""
        self._run.log(dict(numbers), step=step)

    def close(self, failed: bool) -> None:
        """Write out what waits."""
        self._run.finish()


TRACKERS: dict[str, Opener] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow, "trackio": Trackio}
"""Name (of the package and of the extra) → opener."""


def openers(names: Sequence[str]) -> dict[str, Opener]:
    """The trackers of these names.

    Raises:
        UserError: a name that is not known, or a package that is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        if find_spec(name) is None:
            raise missing_extra(name, name)
    return {name: TRACKERS[name] for name in names}


def recorded(run: Path) -> dict[str, str]:
    """Tracker → id of a run that is to be resumed; empty if it had none.

    Raises:
        UserError: the record is damaged.
    """
    advice = "repair it, or delete it to go on without the trackers it had"
    try:
        found = read_object(run / RECORD, {}, advice)
    except FileNotFoundError:
        return {}
    check_fields(run / RECORD, "content", found, dict.fromkeys(found, str), advice)
    return found


@contextmanager
def tracking(
    openers: Mapping[str, Opener], run: Path, config: Mapping[str, Any], resume: bool = False
) -> Iterator[list[Tracker]]:
    """The trackers of a run, open inside the ``with``; closed at its end, after an error too.

    Args:
        openers: name → opener.
        run: the run's folder; its name is the run's name.
        config: the run's configuration.
        resume: go on with what the folder records.
    """
    ids = recorded(run) if resume else {}
    opened: list[Tracker] = []
    with ExitStack() as stack:
        for name, opener in openers.items():
            tracker = opener(run, config, ids.get(name, ""))
            stack.push(_closing(tracker))
            opened.append(tracker)
            ids[name] = tracker.id
        if opened:
            write_atomically(run / RECORD, json.dumps(ids).encode())
        yield opened


def _closing(tracker: Tracker) -> Callable[..., None]:
    """Closes a tracker at the end of a ``with``."""

    def leave(kind: type[BaseException] | None, *_: object) -> None:
        tracker.close(failed=kind is not None)

    return leave


def flat(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of nested metrics, as ``a/b`` → value; what is no number is left out."""
    return {
        name: float(value)
        for name, value in leaves(row)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a nested mapping that is no mapping, as (``a/b``, value)."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value
