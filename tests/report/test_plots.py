"""Series of numbers as pictures in the page."""

import pytest
from tests.report.reports import incident, report
from tests.report.test_html import EVIL, tags

from diagd.daemon.report.html import page
from diagd.daemon.report.plots import FOOT, LEFT, TOP, WIDTH, figure


def plot(values: list[float | None], steps: list[int] | None = None, **more: object) -> dict[str, object]:
    series = [{"label": "rank 0", "steps": steps or list(range(len(values))), "values": values}]
    return {"title": "loss", "series": series, "marks": [], "limit": None, **more}


def points(piece: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in piece.split())]


def test_a_line_runs_from_left_to_right_and_a_larger_value_lies_higher() -> None:
    drawn = figure(plot([1.0, 2.0, 3.0]))
    assert drawn is not None
    (piece,) = drawn["lines"][0]["pieces"]
    places = points(piece)
    assert places[0][0] == LEFT
    assert places[-1][0] == pytest.approx(WIDTH - 10)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)
    assert all(TOP <= y <= FOOT for _, y in places)


def test_a_forecast_goes_on_in_the_colour_of_its_line_and_within_the_picture() -> None:
    ahead = [{"label": "rank 0", "steps": [2, 6], "values": [3.0, 9.0]}]
    drawn = figure(plot([1.0, 2.0, 3.0], forecasts=ahead))
    assert drawn is not None
    (line,), (forecast,) = drawn["lines"], drawn["forecasts"]
    assert forecast["colour"] == line["colour"]
    places = points(forecast["pieces"][0])
    assert places[0] == points(line["pieces"][0])[-1]
    assert places[-1][0] == pytest.approx(WIDTH - 10)
    assert TOP <= places[-1][1] < places[0][1] <= FOOT
    made = report()
    made["plots"] = [plot([1.0, 2.0, 3.0], forecasts=ahead)]
    assert 'class="ahead"' in page(made)


def test_values_over_decades_are_drawn_by_their_logarithm() -> None:
    drawn = figure(plot([1e-3, 1e0, 1e3]))
    assert drawn is not None
    heights = [y for _, y in points(drawn["lines"][0]["pieces"][0])]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert {"0.001", "1", "1k"} <= {row["text"] for row in drawn["rows"]}


def test_a_value_that_is_not_finite_parts_the_line_and_is_marked() -> None:
    drawn = figure(plot([1.0, 2.0, None, 4.0]))
    assert drawn is not None
    assert len(drawn["lines"][0]["pieces"]) == 2
    assert len(points(drawn["lines"][0]["pieces"][1])) == 2  # a dot
    assert len(drawn["bad"]) == 1


@pytest.mark.parametrize(
    ("values", "steps"), [([0.0, 0.0], None), ([5.0], [7]), ([-3.0, 1e300], None), ([1e-300, 1e300], None)]
)
def test_odd_ranges_are_drawn(values: list[float | None], steps: list[int] | None) -> None:
    drawn = figure(plot(values, steps))
    assert drawn is not None
    for x, y in points(drawn["lines"][0]["pieces"][0]):
        assert LEFT <= x <= WIDTH
        assert TOP <= y <= FOOT


def test_nothing_finite_is_no_picture() -> None:
    assert figure(plot([None, None])) is None


def test_the_page_shows_each_plot_with_its_marks_and_no_script() -> None:
    made = report(incident())
    evil = plot([1.0, 2.0], marks=[{"step": 1, "label": EVIL}], title=EVIL)
    made["plots"] = [plot([1.0, None, 3.0], marks=[{"step": 2, "label": "training.loss_spike"}], limit=2.5), evil]
    text = page(made)
    assert text.count("<svg") == 2
    assert "training.loss_spike at step 2" in text
    assert "script" not in tags(text)
    assert "By training step" not in page(report(incident()))
