"""What a script's text does with a container."""

from textwrap import dedent

import pytest

from diagd.probes.uses import Uses, grown_in, uses


def read(text: str, path: str, in_function: str = "") -> Uses:
    return uses([("train.py", dedent(text))], path, in_function)


KEEPS = """
class History:
    def __init__(self):
        self.losses = []

    def update(self, loss):
        self.losses.append(loss)

    def smooth(self):
        return sum(self.losses[-50:]) / len(self.losses[-50:])
"""


def test_a_list_that_is_only_appended_to_is_kept_with_the_place_where_it_grows() -> None:
    found = read(KEEPS, "hist.losses")
    assert found.verdict == "kept"
    assert [(place.function, place.line) for place in found.grows] == [("History.update", 7)]


@pytest.mark.parametrize(
    "line",
    [
        "self.losses.clear()",
        "self.losses = []",
        "self.losses = self.losses[-100:]",
        "self.losses[:] = []",
        "del self.losses[0]",
        "self.losses.pop(0)",
        "del self.losses",
        "self.losses, self.targets = [], []",
        "old, self.losses = self.losses, []",
        "self.__init__()",
    ],
)
def test_one_that_is_emptied_or_trimmed_anywhere_is_a_buffer(line: str) -> None:
    assert read(KEEPS + f"\n    def end(self):\n        {line}\n", "hist.losses").verdict == "emptied"


TABLE = """
class Store:
    def __init__(self):
        self.kept = {}

    def put(self, key, value):
        self.kept[key] = value
"""


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["return self.kept.pop(key)"], "taken"),
        (["del self.kept[key]"], "taken"),
        (["del self.kept[key]", "self.kept.clear()"], "emptied"),
        (["if len(self.kept) > 100: del self.kept[next(iter(self.kept))]"], "emptied"),  # a bound
        (["while 100 < len(self.kept): self.kept.pop(min(self.kept))"], "emptied"),
        (["self.kept.pop(0)"], "emptied"),
        (["del self.kept[-1]"], "emptied"),
        (["self.kept.popitem()"], "emptied"),
        (["self.kept.pop(key)", "give(self.kept)"], "emptied"),
    ],
)
def test_a_table_from_which_single_entries_are_taken_may_keep_others(lines: list[str], verdict: str) -> None:
    body = "".join(f"        {line}\n" for line in lines)
    assert read(TABLE + f"\n    def take(self, key):\n{body}", "store.kept").verdict == verdict


def test_one_whose_owner_is_made_anew_on_the_way_to_it_is_a_buffer() -> None:
    assert read(KEEPS, "trainer.hist.losses").verdict == "kept"
    made = "\nclass Trainer:\n    def __init__(self):\n        self.hist = History()\n"
    assert read(KEEPS + made, "trainer.hist.losses").verdict == "kept"
    anew = made + "\n    def begin_epoch(self):\n        self.hist = History()\n"
    assert read(KEEPS + anew, "trainer.hist.losses").verdict == "emptied"


def test_one_that_is_handed_to_something_else_may_be_emptied_there() -> None:
    assert read(KEEPS + "\n    def end(self):\n        flush(self.losses)\n", "hist.losses").verdict == "unknown"
    assert read(KEEPS + "\n    def end(self):\n        torch.stack(self.losses)\n", "hist.losses").verdict == "kept"


@pytest.mark.parametrize(
    "text",
    [
        "def f(self, key):\n    if key not in self.feat:\n        self.feat[key] = load(key)\n",
        "def f(self, key):\n    found = self.feat.get(key)\n    self.feat[key] = found or load(key)\n",
        "def f(self, key):\n    if self.feat[key] is None:\n        self.feat[key] = load(key)\n",
        "def f(self, key):\n    return self.feat.setdefault(key, load(key))",
    ],
)
def test_one_that_is_asked_before_it_is_filled_is_a_cache(text: str) -> None:
    assert read(text, "cache.feat").verdict == "cache"


IN_LOOP = """
def main():
    {before}
    for epoch in range(10):
        {inside}
        for batch in loader:
            outs.append(model(batch))
"""


def test_a_variable_that_each_epoch_makes_anew_is_emptied_and_one_made_before_all_of_them_is_kept() -> None:
    assert read(IN_LOOP.format(before="pass", inside="outs = []"), "outs", "main").verdict == "emptied"
    assert read(IN_LOOP.format(before="outs = []", inside="pass"), "outs", "main").verdict == "kept"


def test_a_variable_of_that_name_in_another_function_is_another_one() -> None:
    other = "\ndef other():\n    outs.clear()\n"
    assert read(IN_LOOP.format(before="outs = []", inside="pass") + other, "outs", "main").verdict == "kept"


def test_the_object_that_holds_it_can_be_made_anew_in_a_loop() -> None:
    text = KEEPS + "\ndef main():\n    for epoch in range(3):\n        hist = History()\n        train(hist)\n"
    assert read(text, "hist.losses").verdict == "emptied"


def test_a_sum_that_goes_on_is_kept_whichever_way_it_is_written() -> None:
    for line in ("total += loss", "total = total + loss", "total = 0.9 * total + 0.1 * loss"):
        found = read(f"def main():\n    total = 0\n    for x in data:\n        loss = f(x)\n        {line}\n", "total")
        assert (found.verdict, found.grows[0].line) == ("kept", 5)


def test_a_list_that_is_packed_into_a_tensor_under_its_name_has_ended_and_one_that_is_joined_to_has_not() -> None:
    filled = "def main():\n    feats = []\n    for x in data:\n        feats.append(f(x))\n"
    assert read(filled + "    feats = torch.stack(feats)\n", "feats", "main").verdict == "emptied"
    joined = "def main():\n    feats = f(0)\n    for x in data:\n        feats = torch.cat([feats, f(x)])\n"
    assert read(joined, "feats", "main").verdict == "kept"


def test_elements_of_a_dictionary_are_known_by_their_key_or_by_what_makes_them() -> None:
    assert read("def after(loss):\n    history['loss'].append(loss)\n", "history['loss']").grows
    assert (
        read("def hook(name, out):\n    self.acts.setdefault(name, []).append(out)\n", "p.acts['0']").verdict == "kept"
    )
    assert read("def hook(name, out):\n    self.acts[name].append(out)\n", "p.acts['0']").verdict == "kept"
    cleared = "def hook(name, out):\n    self.acts[name].append(out)\ndef end(self):\n    self.acts.clear()\n"
    assert read(cleared, "p.acts['0']").verdict == "emptied"
    assert not read("def after(loss):\n    history['acc'].append(loss)\n", "history['loss']").grows


def test_what_is_no_python_is_passed_over() -> None:
    assert uses([("a.py", "def ("), ("b.py", "x.append(1)")], "x").grows[0].file == "b.py"


DATASET = """
class Base:
    def __getitem__(self, i):
        self.seen.append(i)
        return i

class Records(Base):
    def __init__(self):
        self.records = []
        self.records.append(1)
        self.cache = {}

    def image(self, i):
        if i not in self.cache:
            self.cache[i] = load(i)
        return self.cache[i]
"""


def test_what_a_dataset_fills_while_it_is_used_is_found_in_its_class_and_the_classes_it_is_made_of() -> None:
    found = {path: use.verdict for path, use in grown_in("data.py", DATASET, "Records")}
    assert found == {"Records.cache": "cache", "Records.seen": "kept"}
    assert grown_in("data.py", DATASET, "Nothing") == []


def test_what_it_fills_may_lie_in_a_dictionary_or_be_the_files_own() -> None:
    text = """
SEEN = []

class Data:
    def __getitem__(self, i):
        SEEN.append(i)
        self.made["windows"].append(i)
        self.by_kind.setdefault(i % 3, []).append(i)
        local = []
        local.append(i)
        return i
"""
    found = {path: use.verdict for path, use in grown_in("data.py", text, "Data")}
    assert found == {"SEEN": "kept", "Data.made['windows']": "kept", "Data.by_kind": "cache", "Data.by_kind[…]": "kept"}


def test_a_dataset_whose_text_is_no_python_has_none() -> None:
    assert grown_in("data.py", "class (", "Records") == []


@pytest.mark.parametrize(
    ("filling", "verdict"),
    [
        ("if len(pool) < 100:\n            pool.append(x)", "limited"),
        ("if 100 > len(pool) and x is not None:\n            pool.append(x)", "limited"),
        ("while len(pool) <= most:\n            pool.append(x)", "limited"),
        ("if x:\n            pool.append(x)", "kept"),
        ("if len(pool) > 100:\n            pool.append(x)", "kept"),
        ("if len(other) < 100:\n            pool.append(x)", "kept"),
        ("if len(pool) < len(x):\n            pool.append(x)", "kept"),  # which may grow too
        ("if len(pool) < 100:\n            pass\n        else:\n            pool.append(x)", "kept"),
        ("if len(pool) < 100:\n            pool.append(x)\n        pool.append(x)", "kept"),
    ],
)
def test_what_is_filled_only_while_it_is_not_full_is_limited(filling: str, verdict: str) -> None:
    text = f"""
    def run(most, other):
        pool = []
        for x in load():
            {filling.replace(chr(10), chr(10) + "    ")}
    """
    assert read(text, "pool", "run").verdict == verdict
