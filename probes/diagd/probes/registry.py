"""Every probe, by the name of its file. A new one needs its file, its test and a line here."""

from __future__ import annotations


class ProbeSpec:
    """A probe and what starts it.

    `modules`: install(module) is called with each of these right after it was imported, however that happens.
    `always`: it also works before the process is known to be a rank.
    `drill`: it is there only where faults are to be planted, whatever probes are chosen.
    """

    def __init__(self, name: str, modules: tuple[str, ...], always: bool = False, drill: bool = False) -> None:
        self.name = name
        self.modules = modules
        self.always = always
        self.drill = drill


C10D = "torch.distributed.distributed_c10d"
CONNECTOR = "trainer.connectors.logger_connector.logger_connector"  # of Lightning, under each of its names
LOGGERS = (
    "torch.utils.tensorboard.writer",
    "tensorboardX.writer",
    "wandb.sdk.wandb_run",
    "mlflow.tracking.client",
    f"lightning.pytorch.{CONNECTOR}",
    f"pytorch_lightning.{CONNECTOR}",
    "transformers.trainer",
    "tqdm.std",
    "accelerate.accelerator",
)

PROBES: tuple[ProbeSpec, ...] = (
    ProbeSpec("witness", ("subprocess", "multiprocessing.popen_fork", "multiprocessing.popen_forkserver"), always=True),
    ProbeSpec("groups", (C10D,), always=True),
    ProbeSpec("collectives", (C10D,)),
    ProbeSpec("waits", (C10D,)),
    ProbeSpec("stores", (C10D,)),
    ProbeSpec("steps", ("torch.optim.optimizer", "deepspeed.runtime.engine"), always=True),
    ProbeSpec("compiling", ("torch._dynamo.trace_rules",), always=True),
    ProbeSpec("autocast", ("torch.amp.autocast_mode",), always=True),
    # Inside the one that counts them.
    ProbeSpec("losses", ("torch.autograd", "torch.amp.grad_scaler")),
    ProbeSpec("backward", ("torch.autograd",)),
    ProbeSpec("clipping", ("torch.nn.utils", "torch.distributed.fsdp.fully_sharded_data_parallel")),
    ProbeSpec("rates", ("torch.optim.lr_scheduler",), always=True),
    ProbeSpec("data", ("torch.utils.data.dataloader",)),
    ProbeSpec("reading", ("torch.utils.data._utils.fetch",), always=True),  # in data workers too
    ProbeSpec("evaluation", ("torch.nn.modules.module",)),
    ProbeSpec(
        "checkpoint",
        ("torch.serialization", "torch.distributed.checkpoint.state_dict_saver", "safetensors.torch"),
    ),
    ProbeSpec("ending", ("multiprocessing.process", "torch.multiprocessing.spawn"), always=True),
    ProbeSpec("garbage", ()),
    ProbeSpec("heartbeat", ()),
    ProbeSpec("stacks", ()),
    ProbeSpec("output", ()),
    ProbeSpec("loggers", LOGGERS),
    ProbeSpec("server", ()),
    # Behind those that count the steps: its hooks run after theirs.
    ProbeSpec("ledger", ("torch.optim.optimizer", "torch.distributed.algorithms.join", "torch.nn.modules.module")),
    ProbeSpec("norms", ("torch.optim.optimizer",)),
    ProbeSpec("roundoff", ("torch.optim.optimizer",)),
    ProbeSpec("averages", ("torch.optim.optimizer",)),
    ProbeSpec("own_rows", ("torch.optim.optimizer",)),
    ProbeSpec("forwards", ("torch.optim.optimizer",)),
    ProbeSpec("scaler", ("torch.amp.grad_scaler",), always=True),
    ProbeSpec("hyperparameters", ("torch.optim.optimizer",)),
    ProbeSpec(
        "resuming",
        (
            "torch.serialization",
            "torch.nn.modules.module",
            "torch.optim.optimizer",
            "torch.optim.lr_scheduler",
        ),
        always=True,
    ),
    ProbeSpec(
        "loading",
        (
            "torch.distributed.checkpoint.filesystem",
            "torch.distributed.checkpoint.state_dict",
            "torch.distributed.checkpoint.state_dict_loader",
            "torch.distributed.checkpoint.state_dict_saver",
            "safetensors.torch",
            "transformers.modeling_utils",
        ),
        always=True,
    ),
    ProbeSpec("randomness", ("torch.optim.optimizer",)),
    ProbeSpec(
        "inputs",
        (
            "torch.nn.parallel.distributed",
            "torch.distributed.fsdp.fully_sharded_data_parallel",
            "torch.distributed.fsdp._fully_shard._fsdp_state",
            "deepspeed.runtime.engine",
            "torch.optim.optimizer",
        ),
    ),
    ProbeSpec("memory", ("torch.optim.optimizer", "torch.utils.data.dataloader"), always=True),
    # Likewise.
    ProbeSpec("inject", ("torch.optim.optimizer", "torch.autograd", "deepspeed.runtime.engine"), drill=True),
    ProbeSpec("early", ("sys",), always=True),  # at once: what it is for may never come to import anything
)
