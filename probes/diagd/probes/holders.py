"""What of the script's own holds more and more: its lists, dictionaries and graphs, by name, from one look to the next.

A look walks from the variables of the user's frames and modules through attributes, elements and closures. It runs in
the thread that trains, between two steps, so nothing changes under it; it calls no code of the script's (no property,
no overridden method), keeps no reference to what it saw, and ends at its deadline.
"""

import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from diagd.probes import sites, weight

MAX_NODES = 20_000
_DEEP = 6
_WIDE = 32  # elements of a container that are walked; of a longer one only its length counts
_LOOKED_UP = frozenset({"locals", "vars", "eval", "exec", "dir"})  # names: whoever calls them may keep what we clear
_CLEARED = sys.version_info < (3, 13)  # f_locals is a copy that the frame keeps
_ALONE = 3  # references to that copy: the frame's, ours, the counting's own
_OF_TORCH = ("dataset", "datasets", "module", "_modules")  # what an object of torch's is looked through for


class Holder(NamedTuple):
    """Something that holds other things, and how to name it."""

    path: str  # hist.losses
    kind: str  # list, dict, deque, set, cache (functools), graph (of a tensor)
    size: int  # elements; of a graph its nodes
    most: int  # elements of a deque with a maxlen, of a cache with a maxsize; 0: it has no bound
    function: str  # whose variable the path begins with; empty: a module's
    file: str
    owner: str = ""  # the class of the object whose attribute it is
    owner_file: str = ""
    weight: "weight.Weight" = weight.NONE  # of a newest element; only of what has grown

    @property
    def bounded(self) -> bool:
        """Whether it takes no more than so many elements."""
        return self.most > 0


Key = tuple[int, str]
_Node = tuple[str, Any, int, tuple[str, str, str, str]]


def look(
    frame: FrameType | None, before: dict[Key, int], deadline_ns: int, others: dict[str, Any] | None = None
) -> dict[Key, Holder]:
    """All holders that are found from a frame and those that called it.

    Args:
        others: More to begin from, by name.
        before: Sizes at an earlier look: what has grown since is weighed.
        deadline_ns: Of time.thread_time_ns, as a busy machine would leave nothing of so short a time; what is not
            reached by then is left out.
    """
    walk = _Walk(before, deadline_ns)
    copies = []
    while frame is not None:
        if sites.is_user(frame):
            names = _locals(frame)
            walk.begin(names, frame.f_code.co_name, frame.f_code.co_filename)
            if names is not frame.f_globals:
                copies.append(names)
                walk.begin(frame.f_globals, "", frame.f_code.co_filename)
        frame = frame.f_back
    if others:
        walk.begin(others, "", "")
    walk.run()
    if _CLEARED:
        for names in copies:
            if sys.getrefcount(names) <= _ALONE + 1:  # + the list's
                names.clear()  # else a step's tensors would live until somebody asks again
    return walk.found


def with_variables(frame: FrameType, look: Callable[[dict[str, Any]], None]) -> None:
    """Look at a frame's variables, and leave no copy of them behind."""
    names = _locals(frame)
    look(names)
    if _CLEARED and names is not frame.f_globals and sys.getrefcount(names) <= _ALONE:
        names.clear()


def _locals(frame: FrameType) -> dict[str, Any]:
    if frame.f_code.co_flags & 0x1 and _LOOKED_UP.isdisjoint(frame.f_code.co_names) and sys.gettrace() is None:
        return frame.f_locals
    return frame.f_globals


class _Walk:
    """One look under way."""

    def __init__(self, before: dict[Key, int], deadline_ns: int) -> None:
        self.found: dict[Key, Holder] = {}
        self._before = before
        self._deadline_ns = deadline_ns
        self._queue: deque[_Node] = deque()
        self._seen: set[int] = set()

    def begin(self, names: Any, function: str, file: str) -> None:
        """Walk from these variables; a module's only once."""
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        for name, value in list(names.items()):
            if type(name) is str and name[:2] != "__":
                self._queue.append((name, value, 0, (function, file, "", "")))

    def run(self) -> None:
        """Walk, the nearest first."""
        nodes = 0
        while self._queue and nodes < MAX_NODES:
            path, value, depth, where = self._queue.popleft()
            nodes += 1
            if not nodes & 63 and time.thread_time_ns() > self._deadline_ns:
                break
            self._visit(path, value, depth, where)
        self._queue.clear()

    def _visit(self, path: str, value: Any, depth: int, where: tuple[str, str, str, str]) -> None:
        kind = type(value)
        if kind in _PLAIN:
            return
        if weight.is_tensor(kind):
            self._tensor(path, value, depth, where)
            return
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        held = _contents(kind, value)
        if held is not None:
            self._container(path, value, held, depth, where)
        elif depth < _DEEP:
            self._inside(path, value, kind, depth + 1, where)

    def _container(
        self, path: str, value: Any, held: tuple[str, int, int], depth: int, where: tuple[str, str, str, str]
    ) -> None:
        name, size, most = held
        key = (id(value), path)
        grew = size > self._before.get(key, size)
        self.found[key] = Holder(path, name, size, most, *where, weight.newest(value, name) if grew else weight.NONE)
        if size <= _WIDE and depth < _DEEP and name not in ("set", "cache"):
            self._elements(path, value, name, depth + 1, where)

    def _elements(self, path: str, value: Any, kind: str, depth: int, where: tuple[str, str, str, str]) -> None:
        if kind == "dict":
            for key, element in list(dict.items(value)):
                label = repr(key) if type(key) in (str, int) else "…"
                self._queue.append((f"{path}[{label[:40]}]", element, depth, where))
        else:
            each = deque.__iter__(value) if kind == "deque" else list.__iter__(value)
            for place, element in enumerate(list(each)):
                self._queue.append((f"{path}[{place}]", element, depth, where))

    def _tensor(self, path: str, value: Any, depth: int, where: tuple[str, str, str, str]) -> None:
        plain = depth <= 2 and "[" not in path
        first = depth <= 3 and path.count("[") == 1 and path.endswith("[0]")  # as of averages of all parameters
        if (plain or first) and time.thread_time_ns() < self._deadline_ns:
            nodes = weight.graph_length(value)
            if nodes:
                self.found[(0, path)] = Holder(path, "graph", nodes, 0, *where)

    def _inside(self, path: str, value: Any, kind: type, depth: int, where: tuple[str, str, str, str]) -> None:
        """Go on through a module, a class, a function's closure or an object."""
        function, file = where[:2]
        if kind is ModuleType:
            own = getattr(value, "__file__", None)
            if type(own) is str and sites.kind_of_file(own) == 2:
                self.begin(vars(value), "", own)
        elif kind is FunctionType:
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
                self._queue.append((name, _content(cell), depth, (value.__name__, value.__code__.co_filename, "", "")))
        elif issubclass(kind, type):
            if file_of(value):
                members = [(n, v) for n, v in type.__dict__["__dict__"].__get__(value).items() if n[:2] != "__"]
                for name, member in members:
                    self._queue.append(
                        (f"{path}.{name}", member, depth, (function, file, value.__name__, file_of(value)))
                    )
        else:
            self._attributes(path, value, kind, depth, where)

    def _attributes(self, path: str, value: Any, kind: type, depth: int, where: tuple[str, str, str, str]) -> None:
        try:
            names = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            return
        if type(names) is not dict:
            return
        root = kind.__module__.partition(".")[0] if type(kind.__module__) is str else ""
        chosen = _OF_TORCH if root == "torch" else tuple(n for n in names if type(n) is str and n not in _HIDDEN)
        owner = (kind.__name__, file_of(kind))
        for name in (*chosen, *(n for n in _HOOKS if type(names.get(n)) is OrderedDict and names[n])):
            if name in names:
                shown = f"{path}.{name}" if name != "_modules" else path
                self._queue.append((shown, names[name], depth, (where[0], where[1], *owner)))


_PLAIN = frozenset({int, float, str, bytes, bool, type(None), complex, range, slice, type(len)})
_HOOKS = ("_forward_hooks", "_backward_hooks", "_forward_pre_hooks")  # what those of a module close over may grow
_HIDDEN = frozenset(
    {"_parameters", "_buffers", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks", "_state_dict_hooks",
     "_backward_pre_hooks", "_load_state_dict_pre_hooks", "_non_persistent_buffers_set", "_state_dict_pre_hooks",
     "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
     "_load_state_dict_post_hooks", "_is_full_backward_hook"}
)  # fmt: skip


def _contents(kind: type, value: Any) -> tuple[str, int, int] | None:
    """Kind, length and how long it can be at most, 0 for no bound.

    By the built-in types' own methods, whatever a class makes of them.
    """
    if issubclass(kind, dict):
        return "dict", dict.__len__(value), 0
    if issubclass(kind, list):
        return "list", list.__len__(value), 0
    if issubclass(kind, deque):
        return "deque", deque.__len__(value), deque.maxlen.__get__(value) or 0
    if issubclass(kind, set):
        return "set", set.__len__(value), 0
    if kind.__name__ == "_lru_cache_wrapper":
        info = value.cache_info()
        return "cache", info.currsize, info.maxsize or 0
    return None


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


_files: dict[str, str] = {}


def file_of(kind: Any) -> str:
    """The user's file that defines a class; empty where it is somebody else's."""
    module = type.__dict__["__module__"].__get__(kind) if issubclass(type(kind), type) else None
    if type(module) is not str:
        return ""
    if module not in _files:
        file = getattr(sys.modules.get(module), "__file__", None)
        _files[module] = file if type(file) is str and sites.kind_of_file(file) == 2 else ""
    return _files[module]
