"""What source lines say that a rank is doing there."""

import ast
from pathlib import Path

import pytest

from diagd.daemon.agent import source
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import Frame

TRAIN = """\
def records(path):
    for line in open(path):
        yield parse(line)

def train_step(model, batch):
    loss = model(batch)
    loss.backward()

def one(model, batch):
    train_step(model, batch)

def main():
    for step, batch in enumerate(
        records("x")
    ):
        for word in vocabulary():
            count(word)
        one(model, batch)
        for entry in bank():
            entry.drop()
    report()

def direct(it, queue, file):
    while True:
        batch = next(it)
        batch = queue.get()
        batch = next(choose(it))
        model(batch).backward()
        file.write(batch); os.fsync(file.fileno())
    for row in it: model(row)

def told(rank, step, queue, mail):
    for step in range(step):
        try:
            batch = queue.get()
        except Empty:
            batch = queue.get(timeout=9)
        if rank == 1 and step == 7:
            settings = mail.get()
        model(batch).backward()
"""
SITE = Frame("train_step", "/job/train.py", 7)
DIRECT = Frame("direct", "/job/train.py", 28)
FETCH = Frame("records", "/job/train.py", 3)
QUEUE = Frame("get", "/usr/lib/python3.11/queue.py", 171, user=False)


def tree_of(file: str) -> ast.Module | None:
    return ast.parse(TRAIN) if file == "/job/train.py" else None


def at(line: int, function: str = "main") -> Frame:
    return Frame(function, "/job/train.py", line)


def asks(*frames: Frame, site: Frame | None = SITE) -> bool:
    return source.asks_for_input(frames, site, tree_of)


@pytest.mark.parametrize("line", [13, 14])
def test_what_the_head_of_the_step_loop_calls_is_its_input(line: int) -> None:
    assert asks(FETCH, at(line))
    assert asks(at(line))  # an iterator in C has no frame of its own


@pytest.mark.parametrize("line", [16, 17, 18, 19, 21])
def test_other_loops_and_the_body_are_none(line: int) -> None:
    assert not asks(Frame("vocabulary", "/job/words.py", 3), at(line))


def test_a_loop_that_calls_backward_nowhere_is_no_step_loop() -> None:
    assert not asks(FETCH, at(13), site=Frame("elsewhere", "/job/other.py", 3))
    assert not asks(FETCH, at(13), site=None)


def test_what_a_queue_gives_under_a_condition_is_no_batch() -> None:
    site = at(40, "told")
    assert all(asks(QUEUE, at(line, "told"), site=site) for line in (35, 37))
    assert not asks(QUEUE, at(39, "told"), site=site)


def test_next_and_a_queues_get_in_a_loop_are_input() -> None:
    assert asks(FETCH, at(25, "direct"), site=DIRECT)
    assert asks(QUEUE, at(26, "direct"), site=DIRECT)


def test_a_get_of_something_else_and_a_next_of_something_computed_are_not() -> None:
    assert not asks(Frame("get", "/job/settings.py", 5), at(26, "direct"), site=DIRECT)
    assert not asks(Frame("choose", "/job/data.py", 5), at(27, "direct"), site=DIRECT)


@pytest.mark.parametrize(
    "file", ["/x/torch/nn/modules/module.py", "/x/torch/distributed/distributed_c10d.py", "/x/torch/optim/adam.py"]
)
def test_an_iterator_that_trains_or_communicates_is_not_input(file: str) -> None:
    assert not asks(Frame("f", file, 1, user=False), FETCH, at(13))


def test_an_iterator_in_which_the_step_is_made_is_not_input() -> None:
    assert not asks(Frame("mul", "/job/model.py", 1), Frame("train_step", "/job/train.py", 6), FETCH, at(13))


def test_a_progress_bar_is_not_input_but_what_it_asks_is() -> None:
    bar = Frame("__iter__", "/venv/lib/site-packages/tqdm/std.py", 1181, user=False)
    shows = Frame("refresh", "/venv/lib/site-packages/tqdm/std.py", 1347, user=False)
    assert not asks(shows, bar, at(13))
    assert asks(FETCH, bar, at(13))


def test_a_body_in_the_line_of_its_head_is_not_told_from_it() -> None:
    assert not asks(at(30, "direct"), site=Frame("direct", "/job/train.py", 30))


def test_a_line_that_syncs_a_file_is_known_by_the_call() -> None:
    assert source.makes_durable((at(29, "direct"), at(13)), tree_of) == "fsync"
    assert source.makes_durable((at(28, "direct"),), tree_of) == ""
    assert source.makes_durable((Frame("fileno", "/job/io.py", 3), at(29, "direct")), tree_of) == ""


def test_sources_are_read_as_the_process_sees_them_and_only_if_they_are_python(tmp_path: Path) -> None:
    (tmp_path / "9/root/job").mkdir(parents=True)
    (tmp_path / "9/cwd").mkdir()
    (tmp_path / "9/root/job/a.py").write_text("x = 1\n")
    (tmp_path / "9/cwd/b.py").write_text("def broken(:\n")
    found = source.trees(9, Procfs(tmp_path))
    assert isinstance(found("/job/a.py"), ast.Module)
    assert found("b.py") is None
    assert found("/job/none.py") is None


def test_files_that_hold_none_of_the_words_are_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "9/root/job").mkdir(parents=True)
    (tmp_path / "9/root/job/a.py").write_text("x = 1\n")
    (tmp_path / "9/root/job/b.py").write_text("import os\nos.fsync(1)\n")
    found = source.trees(9, Procfs(tmp_path), source.DURABLE)
    assert found("/job/a.py") is None
    assert isinstance(found("/job/b.py"), ast.Module)
    assert found("/job/none.py") is None


def test_a_line_that_waits_for_an_operation_is_told_from_one_that_waits_for_something_else() -> None:
    text = "def go(work, worker):\n    work = send()\n    work.wait()\n    worker.wait()\n"
    line = [Frame("go", "/job/go.py", number) for number in range(5)]

    def waits(*frames: Frame) -> bool:
        return source.waits_for_work(frames, lambda file: ast.parse(text) if file == "/job/go.py" else None)

    assert [waits(frame) for frame in line] == [False, False, False, True, True]
    assert not waits(Frame("wait", "/usr/lib/python3.11/subprocess.py", 1264, user=False), line[4])
    assert not waits(Frame("elsewhere", "/job/other.py", 3))
    assert not waits()
