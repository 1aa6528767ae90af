"""What a checkpoint holds of a run's state, by the shape of what torch.load has returned."""

from typing import Any

MARKS = 64  # tensors by which a file's are known again
DEPTH = 2  # of dictionaries in each other that are looked into


class CheckpointFile:
    """A checkpoint that was read: what of a run's state it holds, and what of that has been taken."""

    def __init__(self, path: str, own: bool) -> None:
        self.path = path
        self.own = own  # this run has written it
        self.tensors: set[int] = set()  # where some of its tensors lie
        self.moments = 0  # parameters for which it holds an optimizer's state
        self.position: int | None = None  # of a learning-rate schedule
        self.model_taken = self.optimizer_taken = self.schedule_taken = False
        self.resumes = False  # an optimizer was given what was meant to be its state
        self.steps_since = 0

    def look_through(self, content: Any, depth: int = DEPTH) -> None:
        """Note what of it is a tensor, an optimizer's state or a schedule's; keeps nothing of it alive."""
        if isinstance(content, list | tuple):
            content = dict(enumerate(content[:MARKS]))
        if not isinstance(content, dict):
            return
        states, last = content.get("state"), content.get("last_epoch")
        if isinstance(states, dict) and isinstance(content.get("param_groups"), list):
            self.moments += sum(bool(kept) for kept in states.values())
            return
        if type(last) is int and "_step_count" in content:
            self.position = max(last, self.position or 0)
            return
        for value in content.values():
            if hasattr(type(value), "untyped_storage"):
                if len(self.tensors) < MARKS:
                    self.tensors.add(value.data_ptr())
            elif depth:
                self.look_through(value, depth - 1)
