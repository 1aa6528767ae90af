"""What the script hands to loggers (TensorBoard, wandb, MLflow, Lightning, transformers, tqdm), or to log_metrics."""

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from diagd.probes import logged, start
from diagd.probes.box.metric_text import Value
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.registry import CONNECTOR
from diagd.probes.state import STATE

_patches = Patches()
_inside = threading.local()  # one logger calls another: the outermost knows the names that the script gave

Call = tuple[Mapping[str, Any], Any, bool]  # metrics, step, whether the logger reads them from their device
Taker = Callable[[tuple[Any, ...], dict[str, Any]], Call | None]


def log_metrics(metrics: Mapping[str, Any], step: int | None = None) -> None:
    """Tell diagd metrics that the script does not log; does nothing where diagd is not.

    Args:
        metrics: Numbers by name. A tensor on a device is left out, since reading it would wait for the device.
        step: The training step; None: the one that was completed last.
    """
    probe = start.SWITCHES.get("loggers")
    if probe is not None and STATE.recording and isinstance(metrics, Mapping):
        probe.run(logged.from_call, metrics, step, False)


def install(probe: Probe, module: Any) -> None:
    """The module of a logger is there."""
    for owner, name, take in _METHODS.get(module.__name__, ()):
        _watch(probe, getattr(module, owner, None), name, take)


def remove() -> None:
    """Put the loggers' own methods back."""
    _patches.undo()


def _watch(probe: Probe, owner: Any, name: str, take: Taker) -> None:
    if owner is None:
        return

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(_inside, "depth", 0) or not STATE.recording:
            return None
        call = take(args, kwargs)
        _inside.depth = 1
        return (call,)

    def after(token: Any, result: Any) -> None:
        _inside.depth = 0
        if token[0] is not None:
            logged.from_call(*token[0])

    def failed(token: Any, error: BaseException) -> None:
        _inside.depth = 0

    _patches.replace(owner, name, wrapper(probe, before, after, failed))


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def _scalar(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """SummaryWriter.add_scalar(tag, scalar_value, global_step=None)."""
    value, step = _argument(args, kwargs, 2, "scalar_value"), _argument(args, kwargs, 3, "global_step")
    return {str(_argument(args, kwargs, 1, "tag")): value}, step, True


def _scalars(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """SummaryWriter.add_scalars(main_tag, tag_scalar_dict, global_step=None)."""
    values = _argument(args, kwargs, 2, "tag_scalar_dict")
    if not isinstance(values, Mapping):
        return None
    return {str(_argument(args, kwargs, 1, "main_tag")): dict(values)}, _argument(args, kwargs, 3, "global_step"), True


def _given(values_name: str, waited: bool) -> Taker:
    """A method that is given metrics by name, and maybe a step."""

    def take(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        values = _argument(args, kwargs, 1, values_name)
        return (dict(values), _argument(args, kwargs, 2, "step"), waited) if isinstance(values, Mapping) else None

    return take


def _of_trainer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """transformers.Trainer.log(logs)."""
    values = _argument(args, kwargs, 1, "logs")
    step = getattr(getattr(args[0], "state", None), "global_step", None)
    return (dict(values), step, False) if isinstance(values, Mapping) else None


def _metric(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """MlflowClient.log_metric(run_id, key, value, timestamp=None, step=None)."""
    key, value = _argument(args, kwargs, 2, "key"), _argument(args, kwargs, 3, "value")
    return {str(key): value}, _argument(args, kwargs, 5, "step"), True


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """MlflowClient.log_batch(run_id, metrics=()), each with a key, a value and a step."""
    metrics = list(_argument(args, kwargs, 2, "metrics") or ())
    if not metrics:
        return None
    return {str(one.key): one.value for one in metrics}, getattr(metrics[0], "step", None), True


def _postfix(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """tqdm.set_postfix(ordered_dict=None, refresh=True, **kwargs); what the script has made text of is as if printed.

    A bar that was made before the process was known to be a rank writes past what reads the streams.
    """
    given = _argument(args, kwargs, 1, "ordered_dict")
    # Not pairs that can be gone through only once: they are the bar's.
    values = dict(given) if isinstance(given, Mapping) else {}
    values.update((name, value) for name, value in kwargs.items() if name not in ("ordered_dict", "refresh"))
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    printed = [Value(name, float(text), len(text.partition(".")[2])) for name, text in texts.items()
               if _PLAIN.fullmatch(text)]  # fmt: skip
    if printed:
        logged.LOGGED.put(printed, None, logged.TEXT)
    return {name: value for name, value in values.items() if name not in texts}, None, False


_PLAIN = re.compile(r"[-+]?\d{1,15}(\.\d{1,15})?|[-+]?(nan|inf)", re.IGNORECASE)
_WRITER = (("SummaryWriter", "add_scalar", _scalar), ("SummaryWriter", "add_scalars", _scalars))
_LIGHTNING = (("_LoggerConnector", "log_metrics", _given("metrics", False)),)
# By the registry's modules.
_METHODS: dict[str, tuple[tuple[str, str, Taker], ...]] = {
    "torch.utils.tensorboard.writer": _WRITER,
    "tensorboardX.writer": _WRITER,
    "wandb.sdk.wandb_run": (("Run", "log", _given("data", True)),),
    "mlflow.tracking.client": (("MlflowClient", "log_metric", _metric), ("MlflowClient", "log_batch", _batch)),
    f"lightning.pytorch.{CONNECTOR}": _LIGHTNING,
    f"pytorch_lightning.{CONNECTOR}": _LIGHTNING,
    "transformers.trainer": (("Trainer", "log", _of_trainer),),
    "tqdm.std": (("tqdm", "set_postfix", _postfix),),
    "accelerate.accelerator": (("Accelerator", "log", _given("values", False)),),
}
