"""Parts of tensors, for people."""

import pytest

from diagd.daemon.regions import in_order, in_words


@pytest.mark.parametrize(
    ("region", "shape", "words"),
    [
        ("", (4, 3), "all of it"),
        ("0:2,0:3", (4, 3), "rows 0 to 1"),
        ("3:4,0:3", (4, 3), "row 3"),
        ("0:4,1:3", (4, 3), "columns 1 to 2"),
        ("0:2,1:2", (4, 3), "column 1 of rows 0 to 1"),
        ("0:1+2:4,0:3", (4, 3), "rows 0, 2 to 3"),
        ("0:4,0:3,5:7", (4, 3, 9), "index 2 = 5 to 6"),
        ("@5:12", (4, 3), "elements 5 to 11"),
        ("@5:6", (4, 3), "element 5"),
    ],
)
def test_a_part_is_said_in_words(region: str, shape: tuple[int, ...], words: str) -> None:
    assert in_words(region, shape) == words


def test_parts_are_sorted_as_they_lie() -> None:
    assert sorted(["10:12,0:3", "2:10,0:3", "0:2,0:3"], key=in_order) == ["0:2,0:3", "2:10,0:3", "10:12,0:3"]
    assert sorted(["@100:120", "@20:100", ""], key=in_order) == ["", "@20:100", "@100:120"]
