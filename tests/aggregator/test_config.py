"""Settings: files below the environment, and mistakes that are named."""

from pathlib import Path

import pytest

from diagd.daemon.config.settings import Config, load
from diagd.daemon.errors import DiagdError


def test_without_anything_the_defaults_hold() -> None:
    assert load({}) == Config()


def test_the_environment_wins_over_a_later_file_and_that_over_an_earlier_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[aggregator]\ngrpc_port = 1\nhttp_port = 1\ntick_s = 1\n")
    second.write_text("[aggregator]\ngrpc_port = 2\nhttp_port = 2\n")
    found = load({"DIAGD_AGGREGATOR_GRPC_PORT": "3", "DIAGD_JOB_ID": "not ours"}, [first, second]).aggregator
    assert (found.grpc_port, found.http_port, found.tick_s) == (3, 2, 1.0)


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        ("[agregator]\n", "'agregator' is not known", "Did you mean aggregator?"),
        ("[aggregator]\ngrpc_prot = 1\n", "'grpc_prot' is not known", "Did you mean grpc_port?"),
        ("[aggregator]\ngrpc_port = 'x'\n", "grpc_port is 'x'", "9473"),
        ("aggregator = 3\n", "section", ""),
        ("[aggregator\n", "no valid TOML", ""),
    ],
)
def test_a_mistake_is_named_with_a_way_out(tmp_path: Path, text: str, message: str, help: str) -> None:
    path = tmp_path / "diagd.toml"
    path.write_text(text)
    with pytest.raises(DiagdError) as wrong:
        load({}, [path])
    assert message in wrong.value.message
    assert str(path) in wrong.value.message
    assert help in wrong.value.help
    assert wrong.value.exit_code == 2


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(DiagdError, match="DIAGD_AGENT_LOOKS_S"):
        load({"DIAGD_AGENT_LOOKS_S": "1"})
    with pytest.raises(DiagdError, match="DIAGD_AGENT_LOOK_S is 'soon'"):
        load({"DIAGD_AGENT_LOOK_S": "soon"})


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DiagdError, match="cannot be read"):
        load({}, [tmp_path / "none.toml"])


def test_metrics_are_named_in_a_file_or_as_json_in_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "diagd.toml"
    path.write_text('[metrics.names]\n"div/q" = "kl"\nscore = ""\n')
    assert load({}, [path]).metrics.names == {"div/q": "kl", "score": ""}
    assert load({"DIAGD_METRICS_NAMES": '{"div": "kl"}'}).metrics.names == {"div": "kl"}
    for wrong in ("kl", '{"div": 3}', '{"div"'):
        with pytest.raises(DiagdError, match="DIAGD_METRICS_NAMES"):
            load({"DIAGD_METRICS_NAMES": wrong})
